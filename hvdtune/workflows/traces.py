"""Traces: merging the ranks' recordings, and loading any trace that a user names."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hvdtune.errors import HvdtuneError, UsageError

if TYPE_CHECKING:
    from hvdtune.timeline.model.trace import Trace
    from hvdtune.workflows.requests import StatusReporter, TraceRequest

_RAW: Final = re.compile(r"rank-\d+(-job(?P<job>\d+))?\.hvt")
_OF_WORKER: Final = re.compile(r"worker-\d+(-job\d+)?\.hvt")


def write_traces(
    raw: Path,
    target: Path,
    request: TraceRequest,
    reporter: StatusReporter,
    *,
    ended: bool = False,
) -> tuple[Path, ...]:
    """Merge the recordings in the folder `raw` into `target`; warn of missing data.

    If the ranks called init() again after shutdown(), each later job has its own trace next to the
    first, with `-job1`, `-job2` ... in its name. All generations of an elastic job share one.

    Args:
        ended: hvdtune ended the ranks, so their recordings need not be closed.

    Returns the traces written. Raises HvdtuneError if one cannot be written.
    """
    from hvdtune.timeline.reading.generations import merge_generations, worker_of
    from hvdtune.timeline.reading.merge import merge

    written = []
    for job, files in sorted(_by_job(raw).items()):
        is_elastic = any(map(worker_of, files))
        trace = (merge_generations if is_elastic else merge)(files, still_recorded=ended)
        warn_of_damage(trace, reporter)
        written.append(target.with_stem(f"{target.stem}-job{job}") if job else target)
        write_trace(trace, written[-1], request)
    return tuple(written)


def warn_of_damage(trace: Trace, reporter: StatusReporter) -> None:
    """Report the data that could not be read."""
    for text in trace.warnings:
        reporter.warning(text)


def write_trace(trace: Trace, target: Path, request: TraceRequest) -> None:
    """Write `target` in the requested format. Raises HvdtuneError if that fails."""
    from hvdtune.timeline.writing.export import write_chrome
    from hvdtune.timeline.writing.export_horovod import write_horovod

    try:
        if request.horovod:
            write_horovod(trace, target, mark_cycles=request.mark_cycles)
        else:
            write_chrome(trace, target)
    except OSError as error:
        raise HvdtuneError(f"cannot write the trace {target}: {error.strerror}") from None


def newest_job(raw: Path) -> list[Path]:
    """Return the recordings in `raw` of the last job that the ranks formed; [] before the first."""
    files = _by_job(raw)
    return files[max(files)] if files else []


def _by_job(raw: Path) -> dict[int, list[Path]]:
    files: defaultdict[int, list[Path]] = defaultdict(list)
    for path in sorted(raw.iterdir()):
        if match := _RAW.fullmatch(path.name):
            files[int(match["job"] or 0)].append(path)
        elif _OF_WORKER.fullmatch(path.name):
            files[0].append(path)
    return files


def existing(paths: Sequence[Path]) -> list[Path]:
    """Return the same paths. Raises UsageError for one that neither exists nor is recorded."""
    from hvdtune.timeline.reading.folders import begun_recording

    for path in paths:
        if not path.exists() and not begun_recording(path):
            raise UsageError(f"{path}: no such file or folder")
    return list(paths)


def refuse_overwriting(target: Path, paths: Iterable[Path]) -> None:
    """Raise UsageError if writing `target` would overwrite a trace in `paths`."""
    from hvdtune.timeline.reading.folders import expand
    from hvdtune.timeline.reading.formats.hvt import MAGIC

    if not target.is_file():
        return
    for read in expand(paths):
        segments = [path for path in (read, read.parent / f"{read.name}.1") if path.exists()]
        if any(target.samefile(part) for part in segments):
            raise UsageError(f"{target} would overwrite itself; choose another --output")
    # A run folder is read by its merged trace, but contains the recordings as well.
    with target.open("rb") as file:
        if file.read(len(MAGIC)) == MAGIC:
            raise UsageError(f"{target} is a rank's recording; choose another --output")


def load_trace(paths: Sequence[Path]) -> Trace:
    """Load the files and folders into one trace; any format is accepted.

    Raises TraceFormatError or UsageError for a path without a trace, or for a duplicate rank.
    """
    from hvdtune.timeline import open_trace
    from hvdtune.timeline.model.duplicate_ranks import refuse_two_files_of_a_rank

    trace = open_trace(existing(paths))
    refuse_two_files_of_a_rank(trace)
    return replace(trace, warnings=trace.warnings + trace.left_out())
