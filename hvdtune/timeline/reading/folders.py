"""What a path stands for: the trace it is, or the traces that lie in a folder."""

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hvdtune.errors import UsageError
from hvdtune.plural import counted
from hvdtune.timeline.reading.inspection import InspectedFile, inspect

_LAUNCH = re.compile(r"launch-([0-9]{1,9})")
_JOB = re.compile(r"rank-[0-9]+-job([0-9]{1,9})\.hvt")


@dataclass
class TraceFiles:
    """What paths stand for.

    Attributes:
        files: the traces.
        notes: what was chosen where there was a choice.
    """

    files: list[InspectedFile] = field(default_factory=list)
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
            found.files.append(inspect(path))
    return found


def expand(paths: Iterable[Path | str]) -> list[Path]:
    """The paths of the files of `find`."""
    return [file.path for file in find(paths).files]


def named(paths: Sequence[Path | str]) -> str:
    """Files for a sentence: two at most by their names, more as a number and their folder."""
    if len(paths) <= 2:
        return ", ".join(map(str, paths))
    return f"{counted(len(paths), 'file')} in {folder_of(paths)}"


def folder_of(paths: Sequence[Path | str]) -> str:
    """The folder that has all of them."""
    parents = [Path(path).parent for path in paths]
    if len({parent.is_absolute() for parent in parents}) > 1:
        parents = [parent.absolute() for parent in parents]
    return os.path.commonpath(parents) or "."


def _look_into(folder: Path, found: TraceFiles) -> None:
    for name in ("trace.json", "trace.json.gz"):
        if (folder / name).is_file():
            found.files.append(inspect(folder / name))
            return
    for place in (folder / "ranks", folder):
        if ranks := _rank_files(place) or _of_newest_launch(place, found):
            found.files += map(inspect, _of_newest_job(ranks, found))
            return
    for pattern in ("*", "**/*"):
        paths = [path for path in sorted(folder.glob(pattern)) if path.name[0] != "."]
        seen = [inspect(path, listed=True) for path in paths if path.is_file()]
        if files := [file for file in seen if file.error is None]:
            found.files += files
            return
    raise UsageError(f"{folder} holds no trace")


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
