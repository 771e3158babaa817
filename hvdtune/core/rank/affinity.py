"""How many processors a process has, and where the core's threads may run."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

from hvdtune.errors import UsageError


def usable_processors() -> int:
    """Return how many threads of this process can run at a time.

    The processors on which it may run, or fewer where a CPU quota of its control groups, as
    containers have, grants less: a quota of 1.5 processors counts as 2.
    """
    from hvdtune.core import _native

    return _native.usable_processors()


def ranges(numbers: Iterable[int]) -> str:
    """Numbers in short, as in 0-3,8."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


@contextlib.contextmanager
def threads_on(core: int) -> Iterator[None]:
    """Binds the native threads that are started inside to `core`; -1 binds none.

    Bound after their start, so that the core still sees every processor that the process has.

    Raises UsageError when the process may not run there.
    """
    if core < 0:
        yield
        return
    require_usable(core, "thread affinity")
    before = _native_threads()
    yield
    for thread in _native_threads() - before:
        with contextlib.suppress(ProcessLookupError):  # it may have ended meanwhile
            os.sched_setaffinity(thread, {core})


def require_usable(core: int, source: str) -> None:
    """Raises UsageError unless this process may run on that core.

    Args:
        source: the setting that names the core.
    """
    usable = os.sched_getaffinity(0)
    if core not in usable:
        names = ", ".join(map(str, sorted(usable)))
        raise UsageError(
            f"{source}: core {core} is not available to this process, which may use {names}"
        )


def where_it_runs(core: int) -> str:
    """The processors of the calling thread, and of the native ones inside `threads_on(core)`."""
    usable = os.sched_getaffinity(0)
    text = f"{'processor' if len(usable) == 1 else 'processors'} {ranges(usable)}"
    return text if core < 0 else f"{text}, hvdtune's threads on {core}"


def _native_threads() -> set[int]:
    known = {thread.native_id for thread in threading.enumerate()}
    return {int(path.name) for path in Path("/proc/self/task").iterdir()} - known
