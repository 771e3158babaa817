"""The studies that are there: in run folders and in databases."""

import fcntl
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
import sqlalchemy

from hvdtune.errors import StudyError, UsageError
from hvdtune.tuner.storage.database import shown_url
from hvdtune.tuner.storage.ownership import foreign_in_file
from hvdtune.tuner.storage.pair_log import read_pairs
from hvdtune.tuner.storage.shared_study import REFERENCE_FILE
from hvdtune.tuner.storage.study_reader import (
    PAIRS_FILE,
    STUDY_FILE,
    read_contents,
    read_study,
    refuse_foreign,
    study_names,
    view_contents,
)
from hvdtune.tuner.storage.trial import StudyView, TrialView

StudyState = Literal["running", "unfinished", "finished", "damaged"]

_MARKS: Final = (STUDY_FILE, PAIRS_FILE, REFERENCE_FILE)
_LOCKS: Final = ("tuner.lock", "run.json")


@dataclass(frozen=True)
class StudyPlace:
    """A run folder with a study, or a study in a database: one of `folder` and `url` is None."""

    name: str
    folder: Path | None = None
    url: sqlalchemy.URL | None = None

    def __str__(self) -> str:
        return self.name if self.url is None else f"{self.name} in {shown_url(self.url)}"


@dataclass(frozen=True)
class OpenStudy:
    """A study, whether a tuner is at it, and what a run says about itself (run.json).

    `failure` is what ended the latest run before its verdict, "" where nothing has.
    """

    place: StudyPlace
    state: StudyState
    view: StudyView
    run: Mapping[str, Any]
    failure: str = ""

    @property
    def measured(self) -> int:
        """Trials with an outcome of their own."""
        return sum(trial.is_measured for trial in self.view.trials)

    @property
    def best(self) -> TrialView | None:
        """The completed trial with the largest mean, not the default: no verdict."""
        complete = [
            trial
            for trial in self.view.trials
            if trial.state == "complete"
            and not trial.is_duplicate
            and trial.setting != self.view.default
        ]
        return max(complete, key=lambda trial: trial.log_ratio, default=None)

    @property
    def verdict(self) -> str:
        """The verdict in one line, "" while there is none."""
        return self._said("text")

    @property
    def in_use(self) -> str:
        """Return the setting in use and its evidence; "" without a verdict."""
        return self._said("in_use")

    @property
    def advice(self) -> str:
        """What to do and why, "" while there is no verdict."""
        return self._said("advice")

    def _said(self, name: str) -> str:
        return "" if self.view.verdict is None else str(self.view.verdict.get(name, ""))

    def document(self) -> dict[str, Any]:
        """Return what programs need to know of the study, without its pairs."""
        beliefs = self.view.beliefs
        trials = [
            {
                "is_duplicate": trial.is_duplicate,
                **msgspec.to_builtins(trial),
                "belief": msgspec.to_builtins(beliefs.get(trial.number)),
            }
            for trial in self.view.trials
        ]
        return {
            "v": 1,
            **self.summary(),
            "default": self.view.default,
            "noise_floor_percent": self.view.noise_floor_percent,
            "verdict": self.view.verdict,
            "trials": trials,
        }

    def summary(self) -> dict[str, Any]:
        """A few lines of it, for programs."""
        best = self.best
        return {
            "study": self.place.name,
            "storage": None if self.place.url is None else shown_url(self.place.url),
            "state": self.state,
            "command": self.run.get("command"),
            "measured_trials": self.measured,
            "measured_pairs": len(self.view.pairs),
            "best_gain_percent": None if best is None else best.gain_percent,
            "verdict": self.verdict or None,
            "failure": self.failure or None,
        }


def is_study(folder: Path) -> bool:
    """Check whether the folder holds a study of ours, or the beginning of one."""
    found = [name for name in _MARKS if (folder / name).is_file()]
    return bool(found) and not (found == [STUDY_FILE] and foreign_in_file(folder / STUDY_FILE))


def run_places(parent: Path) -> list[StudyPlace]:
    """The folders below `parent` that hold studies, the one that was begun last at the end."""
    if not parent.is_dir():
        return []
    folders = [folder for folder in parent.iterdir() if is_study(folder)]
    return [
        StudyPlace(str(folder), folder=folder)
        for folder in sorted(folders, key=lambda folder: (_begun(folder), folder.name))
    ]


def stored_places(url: sqlalchemy.URL) -> list[StudyPlace]:
    """The studies in a database.

    Raises UsageError when its file is missing, StudyError when it cannot be read.
    """
    return [StudyPlace(name, url=url) for name in _names(url)]


def find_place(name: str | None, parent: Path, url: sqlalchemy.URL | None) -> StudyPlace:
    """The study of that name: a folder, a folder in `parent`, or one in the database at `url`.

    Without a name the latest below `parent`, or the only one in the database. Raises UsageError
    when there is no such study.
    """
    if url is not None:
        names = _names(url)
        if name is None and len(names) != 1:
            raise UsageError(f"name the study: {shown_url(url)} holds {', '.join(names) or 'none'}")
        found = names[0] if name is None else name
        if found not in names:
            refuse_foreign(url, found)
            raise UsageError(f"{shown_url(url)} holds no study {found}")
        return StudyPlace(found, url=url)
    if name is None:
        places = run_places(parent)
        if not places:
            raise UsageError(f"there is no study in {parent}")
        return places[-1]
    for folder in (Path(name), parent / name):
        if is_study(folder):
            return StudyPlace(str(folder), folder=folder)
    raise UsageError(f"{name} is not a folder with a study")


def open_study(place: StudyPlace) -> OpenStudy:
    """The study as it stands. Raises StudyError when it cannot be read."""
    if place.url is not None:
        stored = read_contents(place.url, place.name)
        view = view_contents(stored, ())
        at_work = any(tuner.alive for tuner in stored.tuners)
        return OpenStudy(place, _state(at_work, view), view, {})
    assert place.folder is not None
    view = _view_of_run(place.folder)
    state = _state(is_in_use(place.folder), view)
    return OpenStudy(place, state, view, read_run(place.folder), _failure(place.folder))


def _names(url: sqlalchemy.URL) -> list[str]:
    if url.get_backend_name() == "sqlite" and not Path(url.database or "").exists():
        raise UsageError(f"no database {url.database}")
    return study_names(url)


def is_in_use(folder: Path) -> bool:
    """Return whether a tuner works in the folder, or a job that it left running."""
    return any(_is_locked(folder / name) for name in _LOCKS)


def read_run(folder: Path) -> dict[str, Any]:
    """The contents of run.json; empty if it is missing or cannot be read."""
    try:
        document = json.loads((folder / "run.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def _failure(folder: Path) -> str:
    try:
        return (folder / "failure.txt").read_text(encoding="utf-8", errors="replace").strip()
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise StudyError(f"{error.filename}: {error.strerror}") from error


def _view_of_run(folder: Path) -> StudyView:
    if (folder / REFERENCE_FILE).exists():
        return read_study(folder)
    if (folder / STUDY_FILE).exists():
        try:
            return read_study(folder)
        except StudyError as error:
            raise StudyError(
                f"{error}; to find the faults of the study: hvdtune study fsck {folder}"
            ) from error
    # A comparison of two settings has pairs and a verdict, and no trials.
    pairs = read_pairs(folder / PAIRS_FILE)
    if any(pair.phase == "search" for pair in pairs):
        raise StudyError(
            f"{folder / STUDY_FILE} is missing; to repair the study: hvdtune study fsck --repair "
            f"{folder}"
        )
    try:
        verdict = json.loads((folder / "verdict.json").read_bytes())
    except (OSError, ValueError):
        verdict = None
    return StudyView((), pairs, None, None, verdict if isinstance(verdict, dict) else None)


def _state(at_work: bool, view: StudyView) -> StudyState:
    if at_work:
        return "running"
    return "unfinished" if view.verdict is None else "finished"


def _begun(folder: Path) -> int:
    times = [(folder / name).stat().st_mtime_ns for name in (*_MARKS, "run.json")
             if (folder / name).exists()]  # fmt: skip
    return min(times)


def _is_locked(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
