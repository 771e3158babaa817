"""The variables of hvdtune's own that a user may set. Pure.

The knobs have a variable each besides, as `hvdtune.core.config.knobs` lists them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final, TypeVar, cast

from hvdtune import parse
from hvdtune.core.config.launched import NOTE, OWN_PLACE, TRAINING_PYTHON
from hvdtune.errors import UsageError
from hvdtune.horovod import variables

T = TypeVar("T")

PREFIX: Final = "HVDTUNE_"
_ALIKE: Final = 0.7  # of two names: twice what they have in common over both lengths
# What the reference says of each.
VARIABLES: Final[Mapping[str, str]] = {
    "HVDTUNE_STARTED_BY": "The launcher that has started the processes, where several could have; "
    "`none` for a process alone.",
    "HVDTUNE_NODES": "The number of hosts, where each has one process that was started by hand.",
    "HVDTUNE_NODE": "The number of this one of them, from 0 on.",
    "HVDTUNE_HOST": "The name of this rank's host. [default: the launcher's, else the system's]",
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
    "HVDTUNE_JOIN": "`horovod` refuses allgather and broadcast while a rank has joined. Rank 0's "
    "value counts. [default: hvdtune]",
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
    "HVDTUNE_TIMELINE": "The file of each rank's timeline, `%r` for the rank. Without it, -rankN "
    "follows the name where there are several ranks.",
    "HVDTUNE_TIMELINE_STEPS": "The steps to record, as 10-20. [default: all]",
    "HVDTUNE_TIMELINE_MAX_MB": "The most MiB of a rank's timeline. [default: no limit]",
    "HVDTUNE_TIMELINE_WHEN_FULL": "Then `ring` drops the oldest, `stop` ends recording. [default: "
    "ring]",
    "HVDTUNE_LOG_LEVEL": "What is said on stderr: `trace` to `fatal`. [default: warning]",
    "HVDTUNE_STORAGE": "The database of studies that several tuners share, a URL.",
    "HVDTUNE_WORKBENCH_PYTHON": "A Python of another environment that has hvdtune[workbench].",
}
# What hvdtune's programs tell each other, and what its tests are told.
_INTERNAL: Final[frozenset[str]] = OWN_PLACE | {
    NOTE, TRAINING_PYTHON, "HVDTUNE_FAILPOINT", "HVDTUNE_SCRIPT_KNOBS",
}  # fmt: skip
_OF_TESTS: Final = "HVDTUNE_TEST_"


def unknown(env: Mapping[str, str], knobs: Callable[[], Collection[str]]) -> Iterator[str]:
    """A sentence about each variable that has hvdtune's prefix and is none of its own.

    Args:
        knobs: returns the variables of the knobs; called where they matter only.
    """
    named = {name for name in env if name.startswith(PREFIX) and not name.startswith(_OF_TESTS)}
    rest = named - set(VARIABLES) - _INTERNAL
    if not rest:
        return
    known = {*VARIABLES, *knobs()}
    for name in sorted(rest - known):
        import difflib  # only here: it takes time that ranks otherwise do not need

        # Without the prefix, in which all names are alike.
        alike = difflib.get_close_matches(
            name.removeprefix(PREFIX), [each.removeprefix(PREFIX) for each in known], 2, _ALIKE
        )
        meant = " or ".join(PREFIX + each for each in alike)
        advice = (
            f"did you mean {meant}?" if meant else "docs/reference.md lists those that there are"
        )
        yield f"{name} is no variable of hvdtune's and changes nothing: {advice}"


def read_variable(
    env: Mapping[str, str], name: str, parse_text: Callable[[str], T], default: T
) -> T:
    """Return the value of hvdtune's variable, else of Horovod's for it, else the default.

    Raises UsageError naming the variable with a wrong value.
    """
    if text := env.get(name, ""):
        try:
            return parse_text(text)
        except ValueError as error:
            raise UsageError(f"{name}={text} {error}") from None
    for term in variables.standing_for(name):
        if (value := variables.value_of(env, term)) is not None:
            return cast(T, value)
    return default


def read_choice(env: Mapping[str, str], name: str, choices: Sequence[str]) -> str:
    """Return the choice as `read_variable` does; the first one is the default."""
    return read_variable(env, name, functools.partial(parse.one_of, choices), choices[0])
