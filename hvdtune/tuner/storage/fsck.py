"""What is wrong with a study, and what can be done: RUN/pairs.jsonl is the truth."""

import contextlib
import os
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import sqlalchemy
from optuna.trial import FrozenTrial, TrialState

from hvdtune.core.config.knobs import Knob, load_knobs, validate
from hvdtune.errors import StudyError, UsageError
from hvdtune.plural import counted
from hvdtune.tuner.space.search_space import key_of
from hvdtune.tuner.storage import repair
from hvdtune.tuner.storage.database import file_url, parse_url
from hvdtune.tuner.storage.ownership import foreign_in_file
from hvdtune.tuner.storage.pair_log import Pair, pairs_of
from hvdtune.tuner.storage.repair import searched_knobs
from hvdtune.tuner.storage.shared_study import read_reference
from hvdtune.tuner.storage.study_list import StudyPlace, is_in_use, read_run
from hvdtune.tuner.storage.study_reader import (
    PAIRS_FILE,
    STUDY_FILE,
    STUDY_NAME,
    Contents,
    read_contents,
)
from hvdtune.tuner.storage.trial import TrialView, artifacts_of, view_trial
from hvdtune.tuner.storage.trial_timelines import ARTIFACTS_FOLDER

_NEW_STUDY: Final = "start a new study with -o FOLDER"


@dataclass(frozen=True)
class StudyFault:
    """One thing that is wrong; `mend` puts it right, None where nothing can."""

    text: str
    advice: str
    mend: Callable[[], None] | None = None


def check(place: StudyPlace, knobs: Sequence[Knob] | None = None) -> list[StudyFault]:
    """The faults of a study, in the order in which they are to be mended.

    While a tuner works on it, what is merely unfinished is no fault. Raises StudyError when a
    database cannot be reached.
    """
    table = load_knobs() if knobs is None else knobs
    if place.url is not None:
        return list(_stored(place.url, place.name))
    assert place.folder is not None
    return list(_run(place.folder, table))


def _run(folder: Path, knobs: Sequence[Knob]) -> Iterator[StudyFault]:
    working = is_in_use(folder)
    log = repair.read_log(folder / PAIRS_FILE)
    yield from _of_log(folder, log, working)
    if os.access(folder / "run.json", os.R_OK) and not read_run(folder):
        yield StudyFault("run.json does not contain the command", _NEW_STUDY)
    try:
        reference = read_reference(folder)
    except StudyError as error:
        yield StudyFault(str(error), _NEW_STUDY)
        return
    if reference is not None:
        yield from _unpublished(folder, log.pairs)
        return
    faults = list(_of_file(folder, log.pairs, working, knobs))
    yield from faults
    if faults or not (folder / STUDY_FILE).exists():
        return
    stored = read_contents(file_url(folder / STUDY_FILE), STUDY_NAME)
    if not working:
        yield from _zombies(folder, stored.trials)
        yield from _disagreements(folder, stored, log.pairs, knobs)
        yield from _verdicts(folder, stored)
    yield from _spaces(stored, log.pairs, knobs)
    yield from _artifacts(folder, stored.trials)


def _of_log(folder: Path, log: repair.Log, working: bool) -> Iterator[StudyFault]:
    path = folder / PAIRS_FILE
    for number, problem in log.foreign:
        yield StudyFault(
            f"{PAIRS_FILE}:{number}: {problem}",
            f"--repair puts the line into {PAIRS_FILE}.damaged",
            None if working else partial(repair.set_lines_aside, path),
        )
    if log.torn_bytes and not working:
        yield StudyFault(
            f"{PAIRS_FILE}: the last line is incomplete: the tuner was killed while writing it",
            "--repair removes it, and so does the next run",
            partial(repair.cut_off, path, log.torn_bytes),
        )


def _of_file(
    folder: Path, pairs: Sequence[Pair], working: bool, knobs: Sequence[Knob]
) -> Iterator[StudyFault]:
    path = folder / STUDY_FILE
    rebuild = None if working else partial(repair.rebuild, folder, knobs)
    if not path.exists():
        if any(pair.phase == "search" for pair in pairs):
            yield StudyFault(
                f"{STUDY_FILE} is missing", f"--repair rebuilds it from {PAIRS_FILE}", rebuild
            )
        return
    others = foreign_in_file(path)
    if others:
        yield StudyFault(f"{STUDY_FILE} holds study {others[0]}, not made by hvdtune", _NEW_STUDY)
        return
    problem = _sqlite_problem(path)
    if problem is None:
        try:
            read_contents(file_url(path), STUDY_NAME)
        except StudyError as error:
            problem = str(error).removeprefix(f"{path}: ")
    if problem is not None:
        yield StudyFault(
            f"{STUDY_FILE} is damaged ({problem})",
            f"--repair moves it away and rebuilds it from {PAIRS_FILE}",
            rebuild,
        )


def _sqlite_problem(path: Path) -> str | None:
    try:
        uri = path.absolute().as_uri() + "?mode=ro"
        with contextlib.closing(sqlite3.connect(uri, uri=True)) as database:
            (found,) = database.execute("PRAGMA integrity_check(1)").fetchone()
    except sqlite3.DatabaseError as error:
        if isinstance(error, sqlite3.OperationalError):
            return None  # a full disk or no write permission, where reading takes other ways
        return str(error)
    return None if found == "ok" else " ".join(str(found).split())


def _zombies(folder: Path, trials: Sequence[FrozenTrial]) -> Iterator[StudyFault]:
    for trial in trials:
        if trial.state == TrialState.RUNNING:
            yield StudyFault(
                f"trial {trial.number} is marked as running, but no tuner works in this folder",
                "--repair queues it again, and so does the next run",
                partial(repair.requeue_trial, file_url(folder / STUDY_FILE), STUDY_NAME, trial),
            )


def _disagreements(
    folder: Path, stored: Contents, pairs: Sequence[Pair], knobs: Sequence[Knob]
) -> Iterator[StudyFault]:
    rebuild = partial(repair.rebuild, folder, knobs)
    logged = Counter(key_of(pair.setting) for pair in pairs if pair.phase == "search")
    for trial in _measured(stored):
        there = len(pairs_of(pairs, "search", trial.setting))
        if trial.pairs != there:
            yield StudyFault(
                f"trial {trial.number} uses {counted(trial.pairs, 'pair')}, {PAIRS_FILE} has "
                f"{there}",
                f"--repair rebuilds {STUDY_FILE} from {PAIRS_FILE}",
                rebuild,
            )
    known = {key_of(view_trial(trial).setting) for trial in stored.trials}
    unknown = sum(count for key, count in logged.items() if key not in known)
    if unknown:
        yield StudyFault(
            f"{PAIRS_FILE} has {counted(unknown, 'pair')} of settings that no trial has",
            f"--repair rebuilds {STUDY_FILE} from {PAIRS_FILE}",
            rebuild,
        )


def _measured(stored: Contents) -> Iterator[TrialView]:
    """Check all settings but the default, whose pairs are those of the calibration."""
    default = stored.attributes.get("default_setting")
    for trial in stored.trials:
        view = view_trial(trial)
        if view.is_measured and not trial.user_attrs.get("zombie") and view.setting != default:
            yield view


def _spaces(stored: Contents, pairs: Sequence[Pair], knobs: Sequence[Knob]) -> Iterator[StudyFault]:
    default = stored.attributes.get("default_setting")
    others = sum(
        default is not None and dict(pair.reference) != default
        for pair in pairs
        if not pair.reference_log_ratio
    )
    if others:
        yield StudyFault(
            f"{counted(others, 'pair')} measured against a default that is not the study's",
            _NEW_STUDY,
        )
    table = {knob.name: knob for knob in knobs}
    for name, *ends in searched_knobs(stored.attributes.get("space")):
        if name in table and not _is_inside(table[name], ends):
            yield StudyFault(f"the study's range of {name} exceeds the allowed range", _NEW_STUDY)
    for trial in stored.trials:
        setting = trial.user_attrs.get("setting", {})
        try:
            # Runtimes that are tuned by restarting have knobs of their own.
            validate({name: setting[name] for name in setting if name in table}, knobs)
        except UsageError as error:
            yield StudyFault(f"trial {trial.number}: {error}", _NEW_STUDY)


def _is_inside(knob: Knob, ends: Sequence[Any]) -> bool:
    """`ends` are choices, or low and high and two switches."""
    if knob.kind in ("bool", "category") or len(ends) != 4 or not isinstance(ends[3], bool):
        return not knob.choices or set(ends) <= set(knob.choices)
    low, high = ends[:2]
    return bool(knob.low <= low and high <= knob.high)


def _verdicts(folder: Path, stored: Contents) -> Iterator[StudyFault]:
    path = folder / "verdict.json"
    verdict = stored.attributes.get("verdict")
    if verdict is not None and not path.exists():
        yield StudyFault(
            "verdict.json is missing", "--repair writes it", partial(repair.write, path, verdict)
        )
    elif verdict is None and path.exists() and stored.trials:
        yield StudyFault(
            f"{STUDY_FILE} lacks the verdict that verdict.json has",
            "--repair adds it",
            partial(repair.set_verdict, folder),
        )


def _artifacts(folder: Path, trials: Sequence[FrozenTrial]) -> Iterator[StudyFault]:
    for trial in trials:
        for artifact in artifacts_of(trial):
            if not (folder / ARTIFACTS_FOLDER / artifact).exists():
                yield StudyFault(
                    f"the timeline of trial {trial.number} is missing",
                    "--repair removes the trial's link to it",
                    partial(repair.forget_artifact, folder, trial._trial_id, artifact),
                )


def _unpublished(folder: Path, pairs: Sequence[Pair]) -> Iterator[StudyFault]:
    reference = read_reference(folder)
    assert reference is not None
    with repair.open_leases(parse_url(reference.url), reference.study) as leases:
        missing = len(pairs) - (leases.published(reference.tuner) if leases.is_used() else 0)
    if missing > 0:
        yield StudyFault(
            f"{reference} lacks {counted(missing, 'pair')}",
            "--repair restores them, and so does the next run",
            partial(repair.publish, reference, pairs),
        )


def _stored(url: sqlalchemy.URL, name: str) -> Iterator[StudyFault]:
    stored = read_contents(url, name)
    alive = {tuner.id for tuner in stored.tuners if tuner.alive}
    for trial in stored.trials:
        tuner = trial.user_attrs.get("tuner")
        if trial.state == TrialState.RUNNING and tuner not in alive:
            yield StudyFault(
                f"trial {trial.number} is marked as running, but its tuner is not running",
                "--repair queues it again, and so does the next tuner",
                partial(repair.requeue_trial, url, name, trial),
            )
    running = {t.number for t in stored.trials if t.state == TrialState.RUNNING}
    with repair.open_leases(url, name) as table:
        leases = table.leases() if table.is_used() else []
    for lease in leases:
        if lease.tuner not in alive or lease.trial not in running:
            yield StudyFault(
                f"trial {lease.trial} reserves its setting, but no tuner measures it",
                "--repair releases the setting, and so does the next tuner that needs it",
                partial(repair.release, url, name, lease),
            )
    if stored.tuners:
        yield from _missing_pairs(stored)


def _missing_pairs(stored: Contents) -> Iterator[StudyFault]:
    by_tuner: dict[str, list[Pair]] = {}
    for pair in stored.pairs:
        by_tuner.setdefault(pair.by, []).append(pair)
    for trial in _measured(stored):
        of_each = [pairs_of(own, "search", trial.setting) for own in by_tuner.values()]
        there = sum(len(pairs) for pairs in of_each)
        if trial.pairs > there:
            yield StudyFault(
                f"trial {trial.number} uses {counted(trial.pairs, 'pair')}, the database has "
                f"{there}",
                f"hvdtune study fsck --repair in the run folder of {trial.by}",
            )
