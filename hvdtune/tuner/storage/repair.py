"""Mending a study that `fsck` found fault with. Nothing is thrown away: files are set aside."""

import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import optuna
import sqlalchemy
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial, TrialState, create_trial

from hvdtune.core.config.knobs import Knob, Setting, Value
from hvdtune.core.config.script_knobs import is_of_script
from hvdtune.errors import StudyError, UsageError
from hvdtune.tuner.files import replace_file
from hvdtune.tuner.space.search_space import Space, key_of, make_space
from hvdtune.tuner.space.tune_options import TuneOptions
from hvdtune.tuner.stats.estimates import (
    Estimate,
    estimate,
    noise_floor,
    noise_of,
    pooled,
    to_percent,
)
from hvdtune.tuner.storage import ownership
from hvdtune.tuner.storage.database import (
    as_study_error,
    file_url,
    opened_storage,
    parse_url,
    shown_url,
)
from hvdtune.tuner.storage.leases import Lease, LeaseTable
from hvdtune.tuner.storage.pair_log import Pair, pairs_of, parse_pair
from hvdtune.tuner.storage.shared_study import StudyReference
from hvdtune.tuner.storage.study_list import read_run
from hvdtune.tuner.storage.study_reader import (
    PAIRS_FILE,
    STUDY_FILE,
    STUDY_NAME,
    Contents,
    read_contents,
)
from hvdtune.tuner.storage.study_store import lock_study, requeue
from hvdtune.tuner.storage.trial import view_trial
from hvdtune.tuner.storage.trial_timelines import drop_artifact

_FROM_LOG: Final = f"from {PAIRS_FILE}"


@dataclass(frozen=True)
class Log:
    """A log as it is: `foreign` are (line, problem) of lines that are no pairs, `torn_bytes` the
    length of a last line without an end."""

    pairs: tuple[Pair, ...]
    foreign: tuple[tuple[int, str], ...]
    torn_bytes: int


def read_log(path: Path) -> Log:
    """Reads what can be read. Raises StudyError when the file cannot be opened."""
    if not path.exists():
        return Log((), (), 0)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise StudyError(f"cannot read {path}: {error.strerror}") from error
    whole_bytes = data.rfind(b"\n") + 1
    pairs, foreign = [], []
    for number, line in enumerate(data[:whole_bytes].splitlines(), 1):
        try:
            pairs.append(parse_pair(line, ""))
        except StudyError as error:
            foreign.append((number, str(error).removeprefix(": ")))
    return Log(tuple(pairs), tuple(foreign), len(data) - whole_bytes)


def cut_off(path: Path, torn_bytes: int) -> None:
    """Removes the last line, which has no end."""
    with _alone(path.parent), path.open("r+b") as file:
        file.truncate(path.stat().st_size - torn_bytes)
        os.fsync(file.fileno())


def set_lines_aside(path: Path) -> None:
    """Moves the lines that are no pairs into a file beside the log."""
    with _alone(path.parent):
        foreign = {number for number, _ in read_log(path).foreign}
        lines = path.read_bytes().splitlines(keepends=True)
        with path.with_name(path.name + ".damaged").open("ab") as aside:
            aside.writelines(line for number, line in enumerate(lines, 1) if number in foreign)
        part = path.with_name(path.name + ".part")
        with part.open("wb") as file:
            file.writelines(line for number, line in enumerate(lines, 1) if number not in foreign)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)


def rebuild(folder: Path, knobs: Sequence[Knob]) -> None:
    """Makes study.db anew from the log, and from what the old one, set aside, still tells.

    Raises StudyError when nothing tells what was searched.
    """
    with _alone(folder):
        path = folder / STUDY_FILE
        log = read_log(folder / PAIRS_FILE)
        try:
            old = read_contents(file_url(path), STUDY_NAME)
        except StudyError:
            old = Contents((), {})
        space = _space_of(folder, old, log.pairs, knobs)
        further = objectives_beside(old.attributes.get("space")) or list(
            dict.fromkeys(name for pair in log.pairs for name in pair.further)
        )
        trials = _trials(old, log.pairs, space, further)
        attributes = {**_attributes(folder, log.pairs, space), **old.attributes}
        _set_aside(path)
        with as_study_error(path), opened_storage(file_url(path), create=True) as storage:
            study = ownership.open_or_create(storage, STUDY_NAME, 1 + len(further), str(path))
            for name, value in attributes.items():
                if name != ownership.MARK:
                    study.set_user_attr(name, value)
            study.add_trials(trials)


def searched_knobs(signature: object) -> list[list[Any]]:
    """Name and range of each knob, from what a study says of its space; none where it does not."""
    if not isinstance(signature, str):
        return []
    found, _ = json.JSONDecoder().raw_decode(signature)
    knobs: list[list[Any]] = found.get("knobs", [])
    return knobs


def objectives_beside(signature: object) -> list[str]:
    """The objectives of a study but the first, from what it says of its space."""
    if not isinstance(signature, str):
        return []
    _, end = json.JSONDecoder().raw_decode(signature)
    return signature[end:].split()


def requeue_trial(url: sqlalchemy.URL, name: str, trial: FrozenTrial) -> None:
    """Fails a trial that nobody runs and puts its setting into the queue."""
    with open_study(url, name) as study:
        requeue(study, trial)


def set_verdict(folder: Path) -> None:
    """Puts the verdict of verdict.json into the study."""
    with _alone(folder), open_study(file_url(folder / STUDY_FILE), STUDY_NAME) as study:
        study.set_user_attr("verdict", (folder / "verdict.json").read_text(encoding="utf-8"))


def write(path: Path, text: str) -> None:
    """Writes a file whole or not at all."""
    with _alone(path.parent):
        replace_file(path, text)


def forget_artifact(folder: Path, trial_id: int, artifact: str) -> None:
    """Removes what the study says of an artifact."""
    url = file_url(folder / STUDY_FILE)
    with _alone(folder), open_study(url, STUDY_NAME) as study:
        drop_artifact(storage_of(study), trial_id, artifact)


def publish(reference: StudyReference, pairs: Sequence[Pair]) -> None:
    """Puts up the pairs of a run that have not reached the database."""
    with open_leases(parse_url(reference.url), reference.study) as leases:
        done = leases.published(reference.tuner)
        leases.publish(reference.tuner, dict(list(enumerate(pairs))[done:]))


def release(url: sqlalchemy.URL, name: str, lease: Lease) -> None:
    """Frees a setting that nobody measures."""
    with open_leases(url, name) as leases:
        leases.release(lease.tuner, lease.trial)


@contextlib.contextmanager
def open_study(url: sqlalchemy.URL, name: str) -> Iterator[optuna.Study]:
    """A study in a database. Raises StudyError when there is none or it cannot be used."""
    where = str(url.database) if url.get_backend_name() == "sqlite" else shown_url(url)
    with as_study_error(where), opened_storage(url) as storage:
        try:
            yield ownership.load(storage, name, where)
        except KeyError:
            raise StudyError(f"{where} holds no study {name}") from None


@contextlib.contextmanager
def open_leases(url: sqlalchemy.URL, name: str) -> Iterator[LeaseTable]:
    """The leases and pairs of a study that is shared. Raises StudyError as `open_study`."""
    with open_study(url, name) as study:
        yield LeaseTable(storage_of(study).engine, study._study_id)


def storage_of(study: optuna.Study) -> RDBStorage:
    """The database behind Optuna's cache."""
    return cast("RDBStorage", getattr(study._storage, "_backend", study._storage))


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    lock_fd = lock_study(folder)
    try:
        yield
    except OSError as error:
        raise StudyError(f"cannot write {error.filename or folder}: {error.strerror}") from error
    finally:
        os.close(lock_fd)


def _set_aside(path: Path) -> None:
    number = 0
    while (
        aside := path.with_name(f"{path.name}.damaged{f'-{number}' if number else ''}")
    ).exists():
        number += 1
    for suffix in ("-wal", "-shm", "-journal"):
        beside = path.with_name(path.name + suffix)
        if beside.exists():
            os.replace(beside, aside.with_name(path.name + suffix + aside.name[len(path.name) :]))
    if path.exists():
        os.replace(path, aside)


def _space_of(folder: Path, old: Contents, pairs: Sequence[Pair], knobs: Sequence[Knob]) -> Space:
    run = read_run(folder)
    said = run.get("study") or {}
    default = old.attributes.get("default_setting") or said.get("default")
    if default is None and pairs:
        default = dict(pairs[0].reference)
    own = old.attributes.get("script_space") or None
    names = [knob[0] for knob in searched_knobs(old.attributes.get("space")) + searched_knobs(own)]
    knobs = [*knobs, *_script_knobs(searched_knobs(own), default or {})]
    if not names:
        names = said["knobs"].split(",") if said.get("knobs") else []
    if default is None:
        raise StudyError(f"{folder}: the search space is missing: start a new study")
    fixed = tuple(str(text).partition("=")[0] for text in said.get("fix") or ())
    hosts = len(set(run.get("hosts") or ())) or 1
    try:
        return make_space(knobs, default, hosts, tunable=names or None, fixed=fixed)
    except UsageError as error:
        raise StudyError(f"{folder}: {error}: start a new study") from error


def _script_knobs(searched: Sequence[Sequence[Any]], default: Setting) -> list[Knob]:
    """The rows of a script's knobs, as far as the study says what they are."""
    values = {name: (value,) for name, value in default.items() if is_of_script(name)}
    values |= {name: tuple(choices) for name, *choices in searched}
    return [
        Knob(name, "", "category", 0, len(own) - 1, False, default[name], "live", choices=own)
        for name, own in values.items()
    ]


def _attributes(folder: Path, pairs: Sequence[Pair], space: Space) -> dict[str, Any]:
    found: dict[str, Any] = {"default_setting": dict(space.default)}
    if objectives := (read_run(folder).get("study") or {}).get("objectives"):
        found["objective"] = objectives[0]
    own = pairs_of(pairs, "calibrate", space.default)
    if len(own) > 1:
        noise = noise_of([pair.log_ratio for pair in own])
        floor = noise_floor(noise, TuneOptions.proof.min_pairs)
        found["noise_floor"] = to_percent(floor)
        found["noise_floor_pairs"] = TuneOptions.proof.min_pairs
    with contextlib.suppress(OSError):
        found["verdict"] = (folder / "verdict.json").read_text(encoding="utf-8")
    return found


def _trials(
    old: Contents, pairs: Sequence[Pair], space: Space, further: Sequence[str]
) -> list[FrozenTrial]:
    log = {key_of(pair.setting): pair.setting for pair in pairs if pair.phase == "search"}
    calibration = pairs_of(pairs, "calibrate", space.default)
    trials = []
    for trial in old.trials:
        view = view_trial(trial)
        is_own = view.is_measured and not trial.user_attrs.get("zombie")
        there = pairs_of(pairs, "search", view.setting) if is_own else []
        if is_own:
            log.pop(key_of(view.setting), None)
        if is_own and view.setting != space.default and view.pairs != len(there):
            trials.append(_trial(space, view.setting, there, calibration, further))
        else:
            trials.append(trial)
    if not old.trials and calibration:
        # Its spread is that of its own pairs, as in the study: there is none else to pool with.
        trials.append(_ended(space, space.default, calibration, (), further))
    return trials + [
        _trial(space, setting, pairs_of(pairs, "search", setting), calibration, further)
        for setting in log.values()
    ]


def _trial(
    space: Space,
    setting: Setting,
    pairs: Sequence[Pair],
    calibration: Sequence[Pair],
    further: Sequence[str],
) -> FrozenTrial:
    if pairs:
        return _ended(space, setting, pairs, calibration, further)
    params = space.params_of(setting)
    return create_trial(state=TrialState.WAITING, system_attrs={"fixed_params": params})


def _ended(
    space: Space,
    setting: Setting,
    pairs: Sequence[Pair],
    calibration: Sequence[Pair],
    further: Sequence[str],
) -> FrozenTrial:
    recorder = _Recorder(space.params_of(setting))
    space.suggest(recorder)
    own = _estimate(
        [pair.search_log_ratio for pair in pairs], [pair.search_log_ratio for pair in calibration]
    )
    others = {name: estimate([pair.further.get(name, 0.0) for pair in pairs]) for name in further}
    return create_trial(
        state=TrialState.COMPLETE,
        values=[own.mean, *(each.mean for each in others.values())],
        params=recorder.params,
        distributions=recorder.distributions,
        user_attrs={
            "setting": dict(setting),
            "gain_percent": to_percent(own.mean),
            "stderr": 100.0 * own.stderr,
            "pairs": own.n,
            "state_reason": _FROM_LOG,
            "further": {
                name: {"log_ratio": each.mean, "log_stderr": each.stderr}
                for name, each in others.items()
            },
        },
    )


def _estimate(values: Sequence[float], calibration: Sequence[float]) -> Estimate:
    if len(calibration) > 1:
        return pooled(values, noise_of(calibration), 0.95)
    return estimate(values)


class _Recorder:
    """Stands in for a trial: tells a space the parameters and remembers their distributions."""

    def __init__(self, params: dict[str, Value]) -> None:
        self.params: dict[str, Any] = dict(params)
        self.distributions: dict[str, BaseDistribution] = {}

    def suggest_float(self, name: str, low: float, high: float, *, log: bool = False) -> float:
        self.distributions[name] = FloatDistribution(low, high, log=log)
        self.params[name] = min(max(float(self.params[name]), low), high)
        return float(self.params[name])

    def suggest_int(self, name: str, low: int, high: int) -> int:
        self.distributions[name] = IntDistribution(low, high)
        return int(self.params[name])

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        value = self.params[name]
        # A space file may have named choices that are not searched otherwise.
        known = choices if value in choices else (*choices, value)
        self.distributions[name] = CategoricalDistribution(tuple(known))
        return value
