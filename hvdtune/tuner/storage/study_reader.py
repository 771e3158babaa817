"""Reading a study: while a tuner works on it or long after, of a run or in a shared database."""

import json
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import sqlalchemy
from optuna.trial import FrozenTrial

from hvdtune.errors import StudyError
from hvdtune.tuner.stats.posterior import Belief
from hvdtune.tuner.storage import ownership
from hvdtune.tuner.storage.database import (
    as_study_error,
    connected,
    file_url,
    opened_storage,
    parse_url,
    shown_url,
)
from hvdtune.tuner.storage.leases import LeaseTable, Tuner
from hvdtune.tuner.storage.pair_log import Pair, read_pairs
from hvdtune.tuner.storage.shared_study import read_reference
from hvdtune.tuner.storage.trial import StudyView, view_trials

STUDY_NAME: Final = "hvdtune"
STUDY_FILE: Final = "study.db"
PAIRS_FILE: Final = "pairs.jsonl"
# What SQLite says where it cannot make the index of its log: a full or read-only disk.
_NO_ROOM: Final = ("full", "unable to open", "readonly", "read-only", "disk i/o")


@dataclass(frozen=True)
class Contents:
    """A study as the database has it. `tuners` and `pairs` are empty where one tuner is alone."""

    trials: tuple[FrozenTrial, ...]
    attributes: Mapping[str, Any]
    tuners: tuple[Tuner, ...] = ()
    pairs: tuple[Pair, ...] = ()


def read_study(run_dir: Path) -> StudyView:
    """The study of a run as it stands.

    Raises StudyError when there is none or it cannot be read.
    """
    reference = read_reference(run_dir)
    own = read_pairs(run_dir / PAIRS_FILE)
    if reference is not None:
        stored = read_contents(parse_url(reference.url), reference.study, but=reference.tuner)
        return view_contents(stored, own, reference.tuner)
    if not (run_dir / STUDY_FILE).exists():
        raise StudyError(f"{run_dir} holds no study ({STUDY_FILE} is missing)")
    return view_contents(read_contents(file_url(run_dir / STUDY_FILE), STUDY_NAME), own)


def view_contents(stored: Contents, own: tuple[Pair, ...], tuner: str = "") -> StudyView:
    """Return what `read_study` does; what a tuner has found itself comes before the others'."""

    def attribute(name: str) -> Any:
        return stored.attributes.get(f"{name}:{tuner}", stored.attributes.get(name))

    verdict = attribute("verdict")
    beliefs: Mapping[str, Any] = attribute("beliefs") or {}
    trials = view_trials(stored.trials)
    if verdict is not None and all(trial.state == "waiting" for trial in trials):
        trials = []  # A setting of earlier launches was borne out, so nothing is searched.
    return StudyView(
        trials=tuple(trials),
        pairs=(*own, *stored.pairs),
        noise_floor_percent=attribute("noise_floor"),
        default=stored.attributes.get("default_setting"),
        verdict=None if verdict is None else json.loads(verdict),
        noise_floor_pairs=attribute("noise_floor_pairs"),
        beliefs={int(number): Belief(**belief) for number, belief in beliefs.items()},
    )


def read_contents(url: sqlalchemy.URL, name: str, *, but: str = "") -> Contents:
    """Read a study from its database, without the pairs of the tuner `but`.

    Raises StudyError when there is none or it cannot be read.
    """
    with as_study_error(_where(url)):
        try:
            return _contents(url, name, but)
        except sqlalchemy.exc.OperationalError as error:
            if url.get_backend_name() != "sqlite" or not _lacks_room(error):
                raise
            with tempfile.TemporaryDirectory() as folder:
                return _contents(_copy(url, Path(folder)), name, but)


def study_names(url: sqlalchemy.URL) -> list[str]:
    """Return the names of our studies in a database, sorted.

    Raises StudyError if the database cannot be read.
    """
    with as_study_error(_where(url)), opened_storage(url) as storage:
        return ownership.names(storage)[0]


def refuse_foreign(url: sqlalchemy.URL, name: str) -> None:
    """Raise StudyError if another program made the study of this name, or as `study_names`.

    Changes nothing in the database; a missing SQLite file holds no studies.
    """
    if url.get_backend_name() == "sqlite" and not Path(url.database or "").exists():
        return
    where = _where(url)
    with as_study_error(where), connected(url) as connection:
        if ownership.is_foreign(connection, name):
            raise ownership.foreign(name, where)


def _contents(url: sqlalchemy.URL, name: str, but: str) -> Contents:
    with opened_storage(url) as storage:
        try:
            study = ownership.load(storage, name, _where(url))
        except KeyError:
            others = ownership.names(storage)[1]
            if name == STUDY_NAME and others:
                raise ownership.foreign(others[0], _where(url)) from None
            if name == STUDY_NAME:
                return Contents((), {})  # its tuner was killed before it came to it
            raise StudyError(f"{_where(url)} holds no study {name}") from None
        trials, attributes = tuple(study.get_trials(deepcopy=False)), study.user_attrs
        if not LeaseTable.has_tables(storage.engine):
            return Contents(trials, attributes)
        leases = LeaseTable(storage.engine, study._study_id)
        return Contents(trials, attributes, tuple(leases.tuners()), tuple(leases.pairs(but=but)))


def _where(url: sqlalchemy.URL) -> str:
    return str(url.database) if url.get_backend_name() == "sqlite" else shown_url(url)


def _lacks_room(error: sqlalchemy.exc.OperationalError) -> bool:
    return any(words in str(error.orig).lower() for words in _NO_ROOM)


def _copy(url: sqlalchemy.URL, folder: Path) -> sqlalchemy.URL:
    assert url.database
    for suffix in ("", "-wal"):
        path = Path(url.database + suffix)
        if path.exists():
            shutil.copyfile(path, folder / f"{STUDY_FILE}{suffix}")
    return file_url(folder / STUDY_FILE)
