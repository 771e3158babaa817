"""Several tuners on one study: which settings this one may measure, and what others measured.

Before a tuner measures a setting it takes a lease on it; the database holds at most one lease per
setting. The tuner then checks whether the setting has an outcome, and releases the lease after it
has stored its own outcome. Whatever the order of two tuners' steps, only one of them measures.
"""

import contextlib
import json
import socket
import threading
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import sqlalchemy

from hvdtune.core.config.knobs import Setting
from hvdtune.errors import StudyError
from hvdtune.own_files import replacement
from hvdtune.tuner.space.search_space import key_of
from hvdtune.tuner.storage.database import as_study_error, parse_url, shown_url
from hvdtune.tuner.storage.leases import DEAD_AFTER_S, Lease, LeaseTable, Tuner, digest
from hvdtune.tuner.storage.pair_log import Pair, PairLog, pairs_of

REFERENCE_FILE: Final = "storage.json"
# Phases whose pairs count whoever measured them; noise and proof are each tuner's own.
_SHARED_PHASES: Final = ("search", "race")


@dataclass(frozen=True)
class SharedStudy:
    """A study in a database, for any number of tuners.

    Args:
        url: the database, as SQLAlchemy and Optuna write it.
        study: the study's name there.
        fingerprint: what must be equal for the measurements of two tuners to be comparable.
        beat_s: how often a tuner says that it is alive.
        dead_after_s: one that has not said so for this long is dead, and what it was measuring
            free.
    """

    url: str
    study: str
    fingerprint: Mapping[str, Any] = field(default_factory=dict)
    heartbeat_s: float = 10.0
    dead_after_s: float = DEAD_AFTER_S


@dataclass(frozen=True)
class StudyReference:
    """RUN/storage.json: where the study of this folder is, and as which tuner it takes part."""

    url: str
    study: str
    tuner: str

    def __str__(self) -> str:
        return f"study {self.study} in {shown_url(self.url)}"


def read_reference(run_dir: Path) -> StudyReference | None:
    """The reference in a run folder, None if the study itself is in the folder.

    Raises StudyError when the file is damaged.
    """
    path = run_dir / REFERENCE_FILE
    try:
        document = json.loads(path.read_bytes())
        return StudyReference(*(str(document[name]) for name in ("url", "study", "tuner")))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StudyError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, TypeError, KeyError):
        raise StudyError(
            f"{path} does not contain the location of the study. Use another folder."
        ) from None


def adopt_reference(run_dir: Path, share: SharedStudy) -> StudyReference:
    """Return the reference in the folder; write one if the folder is new.

    Raises StudyError when the folder holds another study.
    """
    there = read_reference(run_dir)
    wanted = StudyReference(share.url, share.study, str(uuid.uuid4()))
    if there is None:
        _write_reference(run_dir / REFERENCE_FILE, wanted)
        return wanted
    same = parse_url(there.url) == parse_url(share.url) and there.study == share.study
    if not same:
        raise StudyError(f"{run_dir} belongs to {there}: choose another run folder")
    return there


def _write_reference(path: Path, reference: StudyReference) -> None:
    document = {"v": 1, "url": reference.url, "study": reference.study, "tuner": reference.tuner}
    try:
        # The URL may hold a password.
        with replacement(path, mode=0o600) as part:
            part.write_text(json.dumps(document))
    except OSError as error:
        raise StudyError(f"cannot write {path}: {error.strerror}") from error


class StudyMembership:
    """This tuner's membership of a shared study; `leave` stops its thread and frees its leases.

    The thread only says that the tuner is alive. Everything else is used by the tuner's thread.
    """

    def __init__(
        self,
        engine: sqlalchemy.Engine,
        study_id: int,
        share: SharedStudy,
        tuner: str,
        run_dir: Path,
    ) -> None:
        self._leases = LeaseTable(engine, study_id, share.dead_after_s)
        self._heartbeat_s = share.heartbeat_s
        self.where = shown_url(share.url)
        self.tuner = tuner
        self.name = f"{socket.gethostname()}:{run_dir.absolute().name}"
        self.fingerprint = digest(json.dumps(dict(share.fingerprint), sort_keys=True))[:16]
        self._left = threading.Event()
        self._leases.join(tuner, self.name, self.fingerprint)
        self._heart = threading.Thread(target=self._keep_alive, name="hvdtune-tuner-heartbeat")
        self._heart.start()

    def acquire(self, setting: Setting, trial: int) -> Lease | None:
        """Lease the setting for a trial; returns the lease of a living tuner that holds it."""
        own = Lease(digest(self.fingerprint + key_of(setting)), self.tuner, trial)
        there = self._leases.acquire(own)
        if there is None:
            return None
        if there.tuner in self.alive() and there.tuner != self.tuner:
            return there
        return None if self._leases.take_over(there, own) else there

    def release(self, trial: int) -> None:
        """The trial has an outcome."""
        self._leases.release(self.tuner, trial)

    def alive(self) -> dict[str, Tuner]:
        """The tuners that are alive, this one included."""
        return {each.id: each for each in self._leases.tuners() if each.alive}

    def pairs_of_others(self) -> list[Pair]:
        """Comparable pairs that other tuners have measured in phases that are shared."""
        pairs = self._leases.pairs(but=self.tuner, fingerprint=self.fingerprint)
        return [pair for pair in pairs if pair.phase in _SHARED_PHASES]

    def pairs_by_tuner(self) -> dict[str, tuple[str, list[Pair]]]:
        """By other comparable tuners' ids: the name, and all pairs."""
        pairs = self._leases.pairs(but=self.tuner, fingerprint=self.fingerprint)
        others = [
            each
            for each in self._leases.tuners()
            if each.fingerprint == self.fingerprint and each.id != self.tuner
        ]
        return {each.id: (each.name, [p for p in pairs if p.by == each.name]) for each in others}

    def publish(self, pairs: list[Pair]) -> None:
        """Puts up those of this tuner's pairs that are not yet; `pairs` is its whole log."""
        done = self._leases.published(self.tuner)
        self._leases.publish(self.tuner, dict(list(enumerate(pairs))[done:]))

    def leave(self) -> None:
        """Leave the study. Without a connection, other tuners notice that the heartbeat stopped."""
        self._left.set()
        self._heart.join()
        with contextlib.suppress(sqlalchemy.exc.SQLAlchemyError):
            self._leases.release(self.tuner)
            self._leases.heartbeat(self.tuner, leaves=True)

    def _keep_alive(self) -> None:
        while not self._left.wait(self._heartbeat_s):
            # Who cannot say so is taken for dead, and the tuner's own thread meets the same error.
            with contextlib.suppress(sqlalchemy.exc.SQLAlchemyError):
                self._leases.heartbeat(self.tuner)


class SharedPairLog(PairLog):
    """The log of a tuner that shares its study; pairs of others count beside its own."""

    def __init__(self, path: Path, membership: StudyMembership) -> None:
        super().__init__(path)
        self._membership = membership
        try:
            with as_study_error(membership.where):
                membership.publish(self.pairs)
        except BaseException:
            self.close()
            raise

    def append(self, pair: Pair) -> None:
        """Write the pair, wait until it is on disk, and put it up for the others."""
        super().append(pair)
        with as_study_error(self._membership.where):
            self._membership.publish(self.pairs)

    def of(self, phase: str, setting: Setting | None = None) -> list[Pair]:
        """The pairs of a phase, of one setting if given, this tuner's before those of others."""
        own = super().of(phase, setting)
        if phase not in _SHARED_PHASES:
            return own
        with as_study_error(self._membership.where):
            others = self._membership.pairs_of_others()
        for name in dict.fromkeys(pair.by for pair in others):
            own += pairs_of([pair for pair in others if pair.by == name], phase, setting)
        return own
