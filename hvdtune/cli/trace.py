"""From the ranks' raw files to one trace for each job that they formed."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from typing import Final

from hvdtune.cli.messages import warn
from hvdtune.errors import HvdtuneError

_RAW: Final = re.compile(r"rank-\d+(-job(?P<job>\d+))?\.hvt")


def write_traces(raw: Path, target: Path, *, ended: bool = False) -> list[Path]:
    """Merges the rank files in the folder `raw` into `target`; says on stderr what is missing.

    Where the ranks called init() again after shutdown(), each later job has a trace of its own
    beside the first, with `-job1`, `-job2` ... in its name. `ended`: the ranks were ended, so that
    their files need not be closed.

    Returns the traces written. Raises HvdtuneError when one cannot be.
    """
    files: defaultdict[int, list[Path]] = defaultdict(list)
    for path in sorted(raw.iterdir()):
        if match := _RAW.fullmatch(path.name):
            files[int(match["job"] or 0)].append(path)
    written = []
    for job, ranks in sorted(files.items()):
        written.append(target.with_stem(f"{target.stem}-job{job}") if job else target)
        _write_trace(ranks, written[-1], ended=ended)
    return written


def _write_trace(files: list[Path], target: Path, *, ended: bool) -> None:
    from hvdtune.timeline.export import write_chrome
    from hvdtune.timeline.merge import merge

    trace = merge(files)
    for text in trace.warnings:
        if not (ended and "did not close it" in text):
            warn(text)
    try:
        write_chrome(trace, target)
    except OSError as error:
        raise HvdtuneError(f"cannot write the trace {target}: {error.strerror}") from None
