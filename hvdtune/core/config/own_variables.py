"""The variables of hvdtune that a user may set, and how they are read. Pure.

Each knob of `hvdtune.core.config.knobs` has a variable, too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeVar, cast

from hvdtune import parse
from hvdtune.core.config.launched import NOTE, OWN_PLACE, TRAINING_PYTHON
from hvdtune.errors import UsageError
from hvdtune.horovod import variables

T = TypeVar("T")

PREFIX: Final = "HVDTUNE_"
_ALIKE: Final = 0.7  # similarity of two names, as of difflib
VARIABLES: Final[Mapping[str, str]] = {
    "HVDTUNE_STARTED_BY": "Launcher whose variables hvdtune reads, if several launchers have set "
    "variables; `none` for a single process.",
    "HVDTUNE_NODES": "Number of hosts, if one process was started by hand on each.",
    "HVDTUNE_NODE": "Number of this host, from 0.",
    "HVDTUNE_HOST": "Name of this rank's host. [default: the name that the launcher sets, else the "
    "system's host name]",
    "HVDTUNE_JOB_ID": "Job ID. Must be the same on all ranks and different for each of the user's "
    "jobs.",
    "HVDTUNE_SHARED_FOLDER": "Folder that belongs to the user and is shared by all hosts. Rank 0 "
    "writes its address there. [default: jobs in ~/.cache/hvdtune]",
    "HVDTUNE_KEY": "Key of 64 hexadecimal digits. Must be the same on all ranks.",
    "HVDTUNE_KEY_FILE": "File with the key. Its mode must be 0600.",
    "HVDTUNE_RENDEZVOUS_HOST": "Host of rank 0. Requires a key.",
    "HVDTUNE_RENDEZVOUS_PORT": "Port on which rank 0 listens. Requires a key. [default: derived "
    "from the job, 20000 to 28999]",
    "HVDTUNE_START_TIMEOUT_S": "Seconds in which all ranks must find each other. [default: 30]",
    "HVDTUNE_INTERFACE": "Network interface that leads to the other hosts.",
    "HVDTUNE_ADDRESS": "This host's address for the other ranks, instead of an interface.",
    "HVDTUNE_TRANSPORT": "Set to `tcp` to disable shared memory between ranks on the same host. "
    "[default: auto]",
    "HVDTUNE_CONTROLLER": "Library with which the ranks find each other: `auto`, `mpi` or "
    "`hvdtune`. [default: auto]",
    "HVDTUNE_CPU_OPERATIONS": "Library for collectives on the CPU: `hvdtune` or `mpi`. [default: "
    "hvdtune]",
    "HVDTUNE_GPU_OPERATIONS": "Library for collectives on the GPU: `auto`, `nccl` or `host`, which "
    "copies through host memory. [default: auto]",
    "HVDTUNE_GPU_BITS": "Set to `exact` to make sums of GPU tensors bit-identical to sums on the "
    "CPU. [default: nccl]",
    "HVDTUNE_JOIN": "Set to `horovod` to refuse allgather and broadcast while a rank waits in "
    "`hvd.join()`. Rank 0's value is used. [default: hvdtune]",
    "HVDTUNE_CUDA_LIBRARY": "Path of the CUDA driver library.",
    "HVDTUNE_NCCL_LIBRARY": "Path of the NCCL library, if the process has not loaded NCCL yet.",
    "HVDTUNE_ZERO_COPY": "Set to 0 to disable zero-copy between ranks on the same host. "
    "[default: 1]",
    "HVDTUNE_HOST_COSTS": "Costs of copies and messages on this host: JSON, the path of a JSON "
    "file, or `measure` to measure again. [default: measured once per host]",
    "HVDTUNE_THREAD_AFFINITY": "Cores of hvdtune's threads, one per rank of a host, as in `0,2`.",
    "HVDTUNE_HEARTBEAT_TIMEOUT_S": "Seconds of silence after which a rank is suspected to have "
    "failed. [default: 2]",
    "HVDTUNE_HANG_WARNING_S": "Seconds without progress after which rank 0 reports the wait graph; "
    "0 disables it. [default: 5]",
    "HVDTUNE_HANG_ABORT_S": "Seconds without progress after which the job fails; 0 disables it. "
    "[default: 600]",
    "HVDTUNE_TIMELINE": "Timeline file of each rank, with `%r` for the rank. Without `%r`, "
    "`-rankN` is appended to the name if there are several ranks.",
    "HVDTUNE_TIMELINE_STEPS": "Steps to record, as in `100:120`. [default: all]",
    "HVDTUNE_TIMELINE_MAX_MB": "Maximum size of a rank's timeline in MiB. [default: no limit]",
    "HVDTUNE_TIMELINE_WHEN_FULL": "Action when the timeline reaches its maximum size: `ring` "
    "drops the oldest records, `stop` ends the recording. [default: ring]",
    "HVDTUNE_LOG_LEVEL": "Log level for stderr, from `trace` to `fatal`. [default: warning]",
    "HVDTUNE_STORAGE": "URL of the database of studies that several tuners share.",
    "HVDTUNE_WORKBENCH_PYTHON": "Path of the Python of another environment that has "
    "hvdtune[workbench].",
}
# Set by hvdtune's own programs and tests.
_INTERNAL: Final[frozenset[str]] = OWN_PLACE | {
    NOTE, TRAINING_PYTHON, "HVDTUNE_FAILPOINT", "HVDTUNE_SCRIPT_KNOBS",
}  # fmt: skip
_OF_TESTS: Final = "HVDTUNE_TEST_"


def unknown(env: Mapping[str, str], knobs: Callable[[], Iterable[str]]) -> Iterator[str]:
    """Return one warning per unknown variable with hvdtune's prefix.

    Args:
        knobs: returns the variables of the knobs; called only if necessary.
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
        advice = f"Did you mean {meant}?" if meant else "docs/reference.md lists all variables"
        yield f"{name} is unknown and ignored. {advice}"


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
