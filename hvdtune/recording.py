"""Timelines that the ranks themselves make: `hvd.start_timeline()`, `hvd.stop_timeline()`, and
HOROVOD_TIMELINE where no launcher writes the trace.

Every rank records into a file of its own in a hidden folder beside the trace. The file is called
`rank-N.part` while it grows and `rank-N.hvt` when it is whole, so that rank 0, which makes the
trace, sees for whom it has to wait. The folder is the job's own: what a killed job has
left is neither waited for nor part of the trace, and rank 0 of the next job removes it. Ranks that
record hold a shared lock on the folder's file `in-use`, so that rank 0 leaves such a folder alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import os
import shutil
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hvdtune import workbench
from hvdtune.core.rank import runtime
from hvdtune.errors import HvdtuneError, UsageError
from hvdtune.own_files import make_own_folder, require_own

# For the ranks that have yet to call stop_timeline() when rank 0 has.
PATIENCE_S: Final = 10.0
_LOOK_EVERY_S: Final = 0.02
_IN_USE: Final = "in-use"


@dataclass(frozen=True, eq=False)
class _Recording:
    target: Path
    rank: int
    job: str  # its name
    generation: int  # of the runtime that records
    horovod: bool = False  # in its format
    cycles: bool = False

    @property
    def folder(self) -> Path:
        return self.target.with_name(f".{self.target.name}.ranks-{self.job}")

    @property
    def folders_of_other_jobs(self) -> list[Path]:
        found = self.target.parent.glob(f".{glob.escape(self.target.name)}.ranks-*")
        return [folder for folder in found if folder != self.folder]

    @property
    def part(self) -> Path:
        return self.folder / f"rank-{self.rank}.part"


# start, stop and shutdown are called by one thread at a time
_current: _Recording | None = None
_held: int | None = None  # the descriptor of its folder's `in-use`


def start_timeline(file_path: str | os.PathLike[str], mark_cycles: bool = False) -> None:
    """Records what this rank does from here on, until `stop_timeline` or `shutdown`.

    Call it on all ranks, which must share the folder of `file_path`; a rank that does not call it
    is not in the trace. Nothing needs to be set beforehand. A job whose timeline `hvdtune run`
    records already keeps to that one, with a warning.

    Args:
        file_path: the Chrome trace that rank 0 will write, for `hvdtune timeline view`, Perfetto or
            chrome://tracing. Replaced if it exists.
        mark_cycles: of no effect: cycles are always marked, as counters.

    Raises:
        UsageError: `init` has not been called, a timeline was started and not stopped, or there
            can be no file at `file_path`.
    """
    runtime.native()
    if _current is not None and _current.generation == runtime.generation():
        raise UsageError(f"The timeline {_current.target} is being recorded. Stop it first.")
    target = Path(file_path).absolute()
    if target.is_dir():
        raise UsageError(f"start_timeline({str(file_path)!r}): this is a directory")
    if runtime.is_recorded():
        warnings.warn(
            f"start_timeline({str(file_path)!r}) has no effect: `hvdtune run` or HOROVOD_TIMELINE "
            "already records this job's timeline",
            stacklevel=2,
        )
        return
    _begin(_Recording(target, *_place()), f"start_timeline({str(file_path)!r})")


def _place() -> tuple[int, str, int]:
    return runtime.rank(), runtime.job_name(), runtime.generation()


def _begin(recording: _Recording, asked_by: str) -> None:
    global _current, _held
    if recording.rank == 0:
        for folder in recording.folders_of_other_jobs:
            _remove_unused(folder)
    try:
        make_own_folder(recording.folder)
        _held = _hold(recording.folder)
    except OSError as error:
        raise UsageError(f"{asked_by}: {error.strerror}") from None
    runtime.native().start_timeline(str(recording.part), 0)
    _current = recording
    runtime.on_shutdown(_finish)


def _hold(folder: Path) -> int:
    """Marks a folder as in use until `_release`, or until this process ends."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(folder / _IN_USE, flags, 0o600)
    with contextlib.suppress(OSError):  # a file system without locks: the folder stays
        fcntl.flock(descriptor, fcntl.LOCK_SH)
    return descriptor


def _release() -> None:
    global _held
    descriptor, _held = _held, None
    if descriptor is not None:
        # Children that were forked share the lock, which closing alone would leave to them.
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def _remove_unused(folder: Path) -> None:
    """Removes a folder of this user's in which no rank records any more, if that is possible."""
    with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
        require_own(folder)
        descriptor = os.open(folder / _IN_USE, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        stack.callback(os.close, descriptor)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if any(folder.glob("rank-*")):  # else its first rank may be about to lock it
            shutil.rmtree(folder)


def _obey_horovods_variable() -> None:
    path, cycles = runtime.horovod_timeline()
    if not path:
        return
    target = Path(path).absolute()
    if runtime.generation() > 1:
        target = target.with_stem(f"{target.stem}-job{runtime.generation() - 1}")
    _begin(_Recording(target, *_place(), horovod=True, cycles=cycles), f"HOROVOD_TIMELINE={path}")


runtime.on_init(_obey_horovods_variable)


def stop_timeline() -> None:
    """Ends what `start_timeline` began; on rank 0 returns when the trace is written.

    Rank 0 waits up to 10 s for ranks that have not stopped yet; those it then goes without are
    named in a warning. Does nothing when no timeline was started.

    Raises:
        UsageError: `init` has not been called.
        HvdtuneError: the trace cannot be written.
    """
    native = runtime.native()
    if _current is not None:
        native.stop_timeline()
        _finish()


def _finish() -> None:
    global _current
    recording, _current = _current, None
    if recording is None:
        return
    try:
        _end(recording)
    finally:
        _release()


def _end(recording: _Recording) -> None:
    whole = recording.part.with_suffix(".hvt")
    # Rank 0 has removed the folder when it has made the trace without waiting for this rank.
    with contextlib.suppress(FileNotFoundError):
        recording.part.replace(whole)
    if recording.rank == 0:
        _await_others(recording.folder)
        _write(recording)


def _await_others(folder: Path) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while any(folder.glob("rank-*.part")) and time.monotonic() < deadline_s:
        time.sleep(_LOOK_EVERY_S)


def _write(recording: _Recording) -> None:
    if workbench.missing():
        (recording.folder / _IN_USE).unlink(missing_ok=True)
        said = workbench.keep_recordings(
            recording.folder,
            recording.target,
            horovod=recording.horovod,
            mark_cycles=recording.cycles,
        )
        warnings.warn(said, stacklevel=3)
        return
    from hvdtune.timeline.reading.merge import merge
    from hvdtune.timeline.writing.export import write_chrome
    from hvdtune.timeline.writing.export_horovod import write_horovod

    trace = merge(sorted(recording.folder.glob("rank-*.*")))
    for text in trace.warnings:
        warnings.warn(text, stacklevel=3)
    try:
        if recording.horovod:
            write_horovod(trace, recording.target, mark_cycles=recording.cycles)
        else:
            write_chrome(trace, recording.target)
    except OSError as error:
        raise HvdtuneError(
            f"cannot write the trace {recording.target}: {error.strerror}; the ranks' files are "
            f"in {recording.folder}"
        ) from None
    # A rank that was not waited for may rename its file meanwhile.
    shutil.rmtree(recording.folder, ignore_errors=True)
