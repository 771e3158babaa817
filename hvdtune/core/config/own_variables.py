"""The variables of hvdtune's own that a user may set. Pure.

The knobs have a variable each besides, as `hvdtune.core.config.knobs` lists them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from hvdtune.core.config.launched import OWN_PLACE

PREFIX: Final = "HVDTUNE_"
_ALIKE: Final = 0.8  # of two names: twice what they have in common over both lengths
# What the reference says of each.
VARIABLES: Final[Mapping[str, str]] = {
    "HVDTUNE_STARTED_BY": "The launcher that has started the processes, where several could have; "
    "`none` for a process alone.",
    "HVDTUNE_NODES": "The number of hosts, where each has one process that was started by hand.",
    "HVDTUNE_NODE": "The number of this one of them, from 0 on.",
    "HVDTUNE_HOST": "The name of this host. [default: the launcher's name, else the system's]",
    "HVDTUNE_JOB_ID": "What tells this job from the user's others, the same for all ranks.",
    "HVDTUNE_SHARED_FOLDER": "A folder of the user's own that the hosts share, where rank 0 leaves "
    "its address. [default: jobs in ~/.cache/hvdtune]",
    "HVDTUNE_KEY": "A key of 64 hexadecimal digits, the same for all ranks.",
    "HVDTUNE_KEY_FILE": "A file of mode 0600 with the key.",
    "HVDTUNE_RENDEZVOUS_HOST": "With a key: the host of rank 0.",
    "HVDTUNE_RENDEZVOUS_PORT": "With a key: the port at which rank 0 listens. [default: one from "
    "20000 to 28999 that follows from the job]",
    "HVDTUNE_START_TIMEOUT_S": "How long the ranks wait for each other. [default: 30]",
    "HVDTUNE_INTERFACE": "The network interface that the hosts have in common.",
    "HVDTUNE_ADDRESS": "This host's address for the other ranks, instead of an interface.",
    "HVDTUNE_TRANSPORT": "`tcp` leaves the shared memory of a host unused. [default: auto]",
    "HVDTUNE_CONTROLLER": "Who brings the ranks together: `auto`, `mpi` or `hvdtune`. [default: "
    "auto]",
    "HVDTUNE_CPU_OPERATIONS": "Who carries out the collectives: `hvdtune` or `mpi`. [default: "
    "hvdtune]",
    "HVDTUNE_GPU_OPERATIONS": "What carries tensors on a GPU: `auto`, `nccl` or `host`. [default: "
    "auto]",
    "HVDTUNE_GPU_BITS": "`exact`: the sums of tensors on a GPU are those of the CPU, bit for bit. "
    "[default: nccl]",
    "HVDTUNE_CUDA_LIBRARY": "The library of CUDA's driver to load.",
    "HVDTUNE_NCCL_LIBRARY": "The NCCL to load where the process has none yet.",
    "HVDTUNE_ZERO_COPY": "`0`: ranks of a host do not read each other's memory. [default: 1]",
    "HVDTUNE_HOST_COSTS": "What copies and messages cost on this host, or `measure`. [default: "
    "measured once for each host]",
    "HVDTUNE_THREAD_AFFINITY": "The core of hvdtune's threads, for each rank of a host.",
    "HVDTUNE_HEARTBEAT_TIMEOUT_S": "Silence after which a rank is suspected. [default: 2]",
    "HVDTUNE_HANG_WARNING_S": "Time without progress after which rank 0 says who waits for whom. "
    "[default: 5]",
    "HVDTUNE_HANG_ABORT_S": "Time without progress after which the job fails. [default: 600]",
    "HVDTUNE_TIMELINE": "The file of each rank's timeline, `%r` for the rank.",
    "HVDTUNE_TIMELINE_STEPS": "The steps to record, as 10-20. [default: all]",
    "HVDTUNE_TIMELINE_MAX_MB": "The most MiB of a rank's timeline. [default: no limit]",
    "HVDTUNE_TIMELINE_WHEN_FULL": "Then `ring` drops the oldest, `stop` ends recording. [default: "
    "ring]",
    "HVDTUNE_LOG_LEVEL": "What is said on stderr: `trace` to `fatal`. [default: warning]",
    "HVDTUNE_STORAGE": "The database of studies that several tuners share, a URL.",
    "HVDTUNE_WORKBENCH_PYTHON": "A Python of another environment that has hvdtune[workbench].",
}


def misspelt(env: Mapping[str, str], knobs: Collection[str]) -> Iterator[str]:
    """A sentence about each variable whose name is nearly one that a user may set.

    Args:
        knobs: the variables of the knobs.
    """
    known = {name.removeprefix(PREFIX) for name in (*VARIABLES, *knobs)}
    for name in sorted(env):
        own = name.removeprefix(PREFIX)
        if own == name or own in known or name in OWN_PLACE:
            continue
        import difflib  # only here: it takes time that ranks otherwise do not need

        if close := difflib.get_close_matches(own, known, 1, _ALIKE):
            yield (
                f"{name} is no variable of hvdtune's and changes nothing: did you mean "
                f"{PREFIX}{close[0]}?"
            )
