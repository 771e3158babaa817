"""What a path stands for: the trace it is, or the traces that lie in a folder."""

import contextlib
import glob
import os
import re
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hvdtune.errors import UsageError
from hvdtune.plural import counted
from hvdtune.timeline.reading.inspection import InspectedFile, inspect

_LAUNCH = re.compile(r"launch-([0-9]{1,9})")
_MOST_NAMED = 4  # files beside recordings; of more their number is told
_JOB = re.compile(r"rank-[0-9]+-job([0-9]{1,9})\.hvt")


@dataclass
class TraceFiles:
    """What paths stand for.

    Attributes:
        files: the traces.
        notes: what was chosen where there was a choice.
        still_recorded: they are files that ranks record at this time, as far as can be known.
    """

    files: list[InspectedFile] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    still_recorded: bool = False


def find(paths: Iterable[Path | str]) -> TraceFiles:
    """The traces that paths stand for: themselves, or what is in a folder.

    Raises:
        UsageError: a folder holds no trace.
    """
    found = TraceFiles()
    for path in map(Path, paths):
        if path.is_dir():
            _look_into(path, found)
            continue
        begun = begun_recording(path)
        if not begun:
            found.files.append(inspect(path))
            continue
        where = f"in {begun[0].parent}, if they have not been killed"
        if path.exists():
            found.files.append(inspect(path))
            found.notes.append(f"{path} belongs to an earlier job: ranks record a new one {where}")
        else:
            found.files += map(inspect, _of_newest_job(begun, found))
            found.notes.append(f"{path} is not written yet: ranks still record it {where}")
            found.still_recorded = True
    return found


def begun_recording(trace: Path) -> list[Path]:
    """The files in which the ranks of a job record what will be `trace`, empty without them.

    They are in a hidden folder beside it until it is written. A trace that is younger than them is
    theirs: a folder that a killed job has left says nothing of it.
    """
    begun = []
    for folder in trace.parent.glob(f".{glob.escape(trace.name)}.*"):
        # Not that of trace.json.gz for trace.json; and a rank's part is newer than its whole file.
        if folder.is_dir() and "." not in folder.name.removeprefix(f".{trace.name}."):
            files = [*_rank_files(folder), *_rank_files(folder, "*.part")]
            begun.append([*{file.stem: file for file in files}.values()])
    newest = max(begun, key=_changed_ns, default=[])
    return newest if _changed_ns(newest) > _changed_ns([trace]) else []


def _changed_ns(files: Iterable[Path]) -> int:
    """When the last of them was changed, 0 without any."""
    times_ns = [0]
    for file in files:
        with contextlib.suppress(FileNotFoundError):
            times_ns.append(file.stat().st_mtime_ns)
    return max(times_ns)


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
            if place == folder:
                _tell_of_others(folder, found)
            return
    for pattern in ("*", "**/*"):
        paths = [path for path in sorted(folder.glob(pattern)) if path.name[0] != "."]
        seen = [inspect(path, listed=True) for path in paths if path.is_file()]
        if files := [file for file in seen if file.error is None]:
            found.files += files
            found.notes += _empty_ones(seen, {file.path.suffix for file in files})
            return
    raise UsageError(f"{folder} holds no trace")


def _empty_ones(seen: Iterable[InspectedFile], suffixes: Container[str]) -> list[str]:
    """Sentences on files that would be traces by their names, and may be a rank's."""
    return [
        str(file.error) for file in seen if file.kind == "empty" and file.path.suffix in suffixes
    ]


def _tell_of_others(folder: Path, found: TraceFiles) -> None:
    """They may be of the same ranks, as torch.profiler's, or made of the same files."""
    paths = [path for path in sorted(folder.glob("*")) if path.name[0] != "." and path.is_file()]
    seen = [inspect(path, listed=True) for path in paths if path.suffix != ".hvt"]
    others = [file.path.name for file in seen if file.error is None and file.kind != "recording"]
    if others:
        several = counted(len(others), "other file")
        found.notes.append(
            f"only the ranks' recordings in {folder} were read; "
            f"{', '.join(others) if len(others) <= _MOST_NAMED else several} may be traces, too: "
            "to open them together, pass all files"
        )


def _rank_files(folder: Path, pattern: str = "*.hvt") -> list[Path]:
    files = sorted(folder.glob(pattern))
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
            f"{folder} has traces of {len(launches)} launches; showing the newest, {newest.name}. "
            "Pass the folder of another launch to see it"
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
            f"{folder_of(files)} has traces of {len(jobs)} jobs; showing the newest, job {newest}. "
            "Pass the files of another job to see it"
        )
    return jobs[newest]
