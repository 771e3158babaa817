"""`hvdtune timeline record`: records some steps of a running job."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from hvdtune.core.job.interrupt import stop_signals
from hvdtune.errors import HvdtuneError, TraceFormatError, UsageError
from hvdtune.launcher.control import ControlClient, JobState, connect
from hvdtune.timeline.model.steps import common_steps, cut_before, cut_to_steps
from hvdtune.timeline.model.trace import Trace
from hvdtune.timeline.reading.formats.hvt import is_closed
from hvdtune.timeline.reading.merge import merge
from hvdtune.workflows.requests import RecordRequest, StatusReporter, TraceRequest
from hvdtune.workflows.traces import newest_job, warn_of_damage, write_trace

_LOOK_EVERY_S: Final = 0.1
# A launcher reads its ranks' reports four times a second.
_LAG_S: Final = 0.4
# Incomplete steps at the beginning and at the end of the recording.
_MARGIN: Final = 2
_NO_STEP_S: Final = 60.0
_CLOSING_S: Final = 10.0


def record(
    target: str, output: Path | None, request: RecordRequest, reporter: StatusReporter
) -> Path:
    """Record the job that a process id or run folder names; return the path of the trace.

    Raises UsageError if the job does not exist, HvdtuneError if nothing could be recorded.
    """
    if request.steps is not None and request.seconds is not None:
        raise UsageError("give --steps or --seconds, not both")
    with stop_signals(), connect(target) as job:
        output = output or Path(f"trace-{job.pid}.json")
        if output.is_dir():
            raise UsageError(f"--output {output} is a directory")
        state = job.state()
        with _files(state, output) as files:
            since_unix_ns = time.time_ns()
            first = job.record(str(files), int(request.max_mb * 2**20)).steps
            reporter.info(f"recording process {job.pid}; Ctrl-C ends it")
            try:
                _wait_until_recorded(job, files, request)
            except KeyboardInterrupt:
                reporter.info("recording ends")
            except HvdtuneError as error:
                reporter.warning(str(error))
            with contextlib.suppress(HvdtuneError):  # it has ended, so its files are closed
                job.stop()
            trace = _read(files, state)
            warn_of_damage(trace, reporter)
            if request.steps is not None:
                trace, whole = _whole_steps(trace, first if state.timeline else 0, request.steps)
                if whole < request.steps:
                    reporter.warning(f"only {whole} whole steps could be recorded")
            elif state.timeline and "origin_unix_ns" in trace.meta:
                trace = cut_before(trace, since_unix_ns - trace.meta["origin_unix_ns"])
            if trace.events.empty:
                raise HvdtuneError("nothing was recorded: the job was idle")
            write_trace(trace, output, TraceRequest())
    return output


@contextlib.contextmanager
def _files(state: JobState, output: Path) -> Iterator[Path]:
    """Yield the path of the recordings, `rank-%r.hvt`: the job's own, or a temporary folder."""
    # Made even for a job with its own recordings: an unwritable output fails before recording.
    try:
        folder = Path(tempfile.mkdtemp(prefix=f".{output.name}.", dir=output.absolute().parent))
    except OSError as error:
        raise UsageError(f"--output {output}: {error.strerror}") from None
    try:
        yield Path(state.timeline) if state.timeline else folder / "rank-%r.hvt"
    finally:
        shutil.rmtree(folder)


def _wait_until_recorded(job: ControlClient, files: Path, request: RecordRequest) -> None:
    """Raises HvdtuneError if the job ends first."""
    give_up_s = time.monotonic() + _NO_STEP_S
    while not newest_job(files.parent):
        job.state()
        if time.monotonic() > give_up_s:
            raise HvdtuneError("no rank has started to record: hvd.init() has not been called yet")
        time.sleep(_LOOK_EVERY_S)
    if request.steps is None:
        _wait_for_time(job, request.seconds)
        return
    time.sleep(_LAG_S)
    begun = done = job.state().steps
    give_up_s = time.monotonic() + _NO_STEP_S
    while done < begun + request.steps + _MARGIN:
        time.sleep(_LOOK_EVERY_S)
        before, done = done, job.state().steps
        if done > before:
            give_up_s = time.monotonic() + _NO_STEP_S
        if time.monotonic() > give_up_s:
            raise HvdtuneError(
                f"no step has ended for {_NO_STEP_S:g} s. Call hvd.mark_step() in a script without "
                "DistributedOptimizer, or record with --seconds."
            )


def _wait_for_time(job: ControlClient, seconds: float | None) -> None:
    end_s = time.monotonic() + (float("inf") if seconds is None else seconds)
    while (left_s := end_s - time.monotonic()) > 0:
        time.sleep(min(left_s, _LOOK_EVERY_S))
        job.state()


def _read(files: Path, state: JobState) -> Trace:
    """Read the recordings of this host's ranks. Those that the job does not need are closed."""
    give_up_s = time.monotonic() + (0.0 if state.timeline else _CLOSING_S)
    here = state.ranks - state.remote
    while time.monotonic() < give_up_s:
        if sum(is_closed(path) for path in newest_job(files.parent)) >= here:
            break
        time.sleep(_LOOK_EVERY_S)
    try:
        return merge(newest_job(files.parent), still_recorded=True)
    except TraceFormatError as error:
        raise HvdtuneError(f"nothing was recorded: {error}") from None


def _whole_steps(trace: Trace, first: int, count: int) -> tuple[Trace, int]:
    """Return the part of the trace with the first `count` whole steps, and their number."""
    steps = [step for step in common_steps(trace) if step >= first][:count]
    if not steps:
        raise HvdtuneError("nothing was recorded: no step began and ended during the recording")
    return cut_to_steps(trace, steps[0], steps[-1] + 1), len(steps)
