"""Paths of traces, before anything is read or written."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from hvdtune.errors import UsageError


def existing(paths: list[Path]) -> list[Path]:
    """The same paths. Raises UsageError for one that is not there."""
    for path in paths:
        if not path.exists():
            raise UsageError(f"{path}: no such file or folder")
    return paths


def refuse_overwriting(target: Path, paths: Iterable[Path]) -> None:
    """Raises UsageError where writing `target` would destroy a trace that `paths` name or hold."""
    from hvdtune.timeline.reading.folders import expand
    from hvdtune.timeline.reading.formats.hvt import MAGIC

    # Some files are written beside their place first: what has that name would be lost, too.
    beside = target.parent / f"{target.name}.partial"
    written = [path for path in (target, beside) if path.is_file()]
    if not written:
        return
    for read in expand(paths):
        segments = [path for path in (read, read.parent / f"{read.name}.1") if path.exists()]
        if any(path.samefile(part) for path in written for part in segments):
            raise UsageError(f"{target}: would be written over itself; choose another --output")
    # Of a run folder the merged trace is read, but what it was merged from lies there as well.
    with written[0].open("rb") as file:
        if file.read(len(MAGIC)) == MAGIC:
            raise UsageError(f"{target}: is what a rank recorded; choose another --output")
