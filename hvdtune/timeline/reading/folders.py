"""What a path stands for: the trace it is, or the traces that lie in a folder."""

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hvdtune.errors import TraceFormatError, UsageError
from hvdtune.timeline.reading.formats import hvt, parquet
from hvdtune.timeline.reading.json.source import is_archive, opened

_LAUNCH = re.compile(r"launch-([0-9]{1,9})")
_JOB = re.compile(r"rank-[0-9]+-job([0-9]{1,9})\.hvt")


@dataclass
class TraceFiles:
    """What paths stand for.

    Attributes:
        files: the traces.
        guesses: those of them that only lie in a folder, and may be no traces at all.
        notes: what was chosen where there was a choice.
    """

    files: list[Path] = field(default_factory=list)
    guesses: set[Path] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)


def find(paths: Iterable[Path | str]) -> TraceFiles:
    """The traces that paths stand for: themselves, or what is in a folder.

    Raises:
        UsageError: a folder holds no trace.
    """
    found = TraceFiles()
    for path in map(Path, paths):
        if path.is_dir():
            _look_into(path, found)
        else:
            found.files.append(path)
    return found


def expand(paths: Iterable[Path | str]) -> list[Path]:
    """The files of `find`."""
    return find(paths).files


def named(paths: Sequence[Path | str]) -> str:
    """Files for a sentence: two at most by their names, more as a number and their folder."""
    if len(paths) <= 2:
        return ", ".join(map(str, paths))
    return f"{len(paths)} files in {folder_of(paths)}"


def folder_of(paths: Sequence[Path | str]) -> str:
    """The folder that has all of them."""
    parents = [Path(path).parent for path in paths]
    if len({parent.is_absolute() for parent in parents}) > 1:
        parents = [parent.absolute() for parent in parents]
    return os.path.commonpath(parents) or "."


def _look_into(folder: Path, found: TraceFiles) -> None:
    for name in ("trace.json", "trace.json.gz"):
        if (folder / name).is_file():
            found.files.append(folder / name)
            return
    for place in (folder / "ranks", folder):
        files = _rank_files(place) or _of_newest_launch(place, found)
        if files:
            found.files += _of_newest_job(files, found)
            return
    for pattern in ("*", "**/*"):
        files = [file for file in sorted(folder.glob(pattern)) if _may_be_a_trace(file)]
        if files:
            found.files += files
            found.guesses.update(files)
            return
    raise UsageError(f"{folder}: holds no trace")


def _rank_files(folder: Path) -> list[Path]:
    files = sorted(folder.glob("*.hvt"))
    return [file for file in files if file.is_file() and file.name[0] != "."]


def _of_newest_launch(folder: Path, found: TraceFiles) -> list[Path]:
    launches = [
        (int(match[1]), path)
        for path in folder.glob("launch-*")
        if (match := _LAUNCH.fullmatch(path.name)) and _rank_files(path)
    ]
    if not launches:
        return []
    _, newest = max(launches)
    if len(launches) > 1:
        found.notes.append(
            f"{folder} has the traces of {len(launches)} launches: this is the newest, "
            f"{newest.name}; name another's folder to see it"
        )
    return _rank_files(newest)


def _of_newest_job(files: Sequence[Path], found: TraceFiles) -> list[Path]:
    """Ranks that call init() again form a further job, whose traces are no other ranks'."""
    jobs: dict[int, list[Path]] = {}
    for file in files:
        match = _JOB.fullmatch(file.name)
        jobs.setdefault(int(match[1]) if match else 0, []).append(file)
    newest = max(jobs)
    if len(jobs) > 1:
        found.notes.append(
            f"{folder_of(files)} has the traces of {len(jobs)} jobs that its ranks formed: this "
            f"is the newest, job {newest}; name another's files to see it"
        )
    return jobs[newest]


def _may_be_a_trace(path: Path) -> bool:
    if path.name.startswith(".") or not path.is_file():
        return False
    try:
        with opened(path) as file:
            start = file.read(1 << 12).lstrip()
    except TraceFormatError:
        return False
    known = (hvt.MAGIC, parquet.MAGIC, b"\x1f\x8b", b"[", b"{", b"\xef\xbb\xbf")
    return start.startswith(known) or is_archive(start)
