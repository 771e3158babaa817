"""One of several tuners on one study: what it may measure, and what the others have measured.

A tuner that is about to measure a setting puts up a claim, of which the database takes one per
setting. It then looks whether the setting has an outcome, and takes its claim back after it has
told its own: so no order of two tuners' steps lets both measure.
"""

import contextlib
import json
import os
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
from hvdtune.tuner.space.search_space import key_of
from hvdtune.tuner.storage.database import as_study_error, parse_url, shown_url
from hvdtune.tuner.storage.leases import Board, Claim, Tuner, digest
from hvdtune.tuner.storage.pair_log import Pair, PairLog, pairs_of

POINTER_FILE: Final = "storage.json"
# Phases whose pairs count whoever measured them; noise and proof are each tuner's own.
_SHARED_PHASES: Final = ("search", "race")


@dataclass(frozen=True)
class Share:
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
    beat_s: float = 10.0
    dead_after_s: float = 90.0


@dataclass(frozen=True)
class Pointer:
    """RUN/storage.json: where the study of this folder is, and as which tuner it takes part."""

    url: str
    study: str
    tuner: str

    def __str__(self) -> str:
        return f"study {self.study} in {shown_url(self.url)}"


def read_pointer(run_dir: Path) -> Pointer | None:
    """Of a run whose study is in a database of several; None where it is in the folder.

    Raises StudyError when the file is damaged.
    """
    path = run_dir / POINTER_FILE
    try:
        document = json.loads(path.read_bytes())
        return Pointer(*(str(document[name]) for name in ("url", "study", "tuner")))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StudyError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, TypeError, KeyError):
        raise StudyError(f"{path} does not say where the study is: use another folder") from None


def claim_pointer(run_dir: Path, share: Share) -> Pointer:
    """That of the folder, made if it is new.

    Raises StudyError when the folder holds another study.
    """
    there = read_pointer(run_dir)
    wanted = Pointer(share.url, share.study, str(uuid.uuid4()))
    if there is None:
        _write_pointer(run_dir / POINTER_FILE, wanted)
        return wanted
    same = parse_url(there.url) == parse_url(share.url) and there.study == share.study
    if not same:
        raise StudyError(f"{run_dir} belongs to {there}; choose another directory")
    return there


def _write_pointer(path: Path, pointer: Pointer) -> None:
    document = {"v": 1, "url": pointer.url, "study": pointer.study, "tuner": pointer.tuner}
    part = path.with_name(path.name + ".part")
    try:
        # The URL may hold a password.
        with open(os.open(path.parent / part.name, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            json.dump(document, file)
        os.replace(part, path)
    except OSError as error:
        raise StudyError(f"cannot write {path}: {error.strerror}") from error


class Sharing:
    """This tuner's part in a shared study; leaving it stops its thread and frees its claims.

    The thread only says that the tuner is alive. Everything else is used by the tuner's thread.
    """

    def __init__(
        self, engine: sqlalchemy.Engine, study_id: int, share: Share, tuner: str, run_dir: Path
    ) -> None:
        self._board = Board(engine, study_id, share.dead_after_s)
        self._beat_s = share.beat_s
        self.where = shown_url(share.url)
        self.tuner = tuner
        self.name = f"{socket.gethostname()}:{run_dir.absolute().name}"
        self.fingerprint = digest(json.dumps(dict(share.fingerprint), sort_keys=True))[:16]
        self._left = threading.Event()
        self._board.join(tuner, self.name, self.fingerprint)
        self._heart = threading.Thread(target=self._keep_alive, name="hvdtune-tuner-heartbeat")
        self._heart.start()

    def claim(self, setting: Setting, trial: int) -> Claim | None:
        """Claims the setting for a trial; returns the claim of a living tuner that has it."""
        own = Claim(digest(self.fingerprint + key_of(setting)), self.tuner, trial)
        there = self._board.claim(own)
        if there is None:
            return None
        if there.tuner in self.alive() and there.tuner != self.tuner:
            return there
        return None if self._board.take_over(there, own) else there

    def release(self, trial: int) -> None:
        """The trial has an outcome."""
        self._board.release(self.tuner, trial)

    def alive(self) -> dict[str, Tuner]:
        """The tuners that are alive, this one included."""
        return {each.id: each for each in self._board.tuners() if each.alive}

    def pairs_of_others(self) -> list[Pair]:
        """Comparable pairs that other tuners have measured in phases that are shared."""
        pairs = self._board.pairs(but=self.tuner, fingerprint=self.fingerprint)
        return [pair for pair in pairs if pair.phase in _SHARED_PHASES]

    def publish(self, pairs: list[Pair]) -> None:
        """Puts up those of this tuner's pairs that are not yet; `pairs` is its whole log."""
        done = self._board.published(self.tuner)
        self._board.publish(self.tuner, dict(list(enumerate(pairs))[done:]))

    def leave(self) -> None:
        """Says good-bye; a database that is out of reach learns of it by this tuner's silence."""
        self._left.set()
        self._heart.join()
        with contextlib.suppress(sqlalchemy.exc.SQLAlchemyError):
            self._board.release(self.tuner)
            self._board.beat(self.tuner, leaves=True)

    def _keep_alive(self) -> None:
        while not self._left.wait(self._beat_s):
            # Who cannot say so is taken for dead, and the tuner's own thread meets the same error.
            with contextlib.suppress(sqlalchemy.exc.SQLAlchemyError):
                self._board.beat(self.tuner)


class SharedPairLog(PairLog):
    """The log of a tuner that shares its study; pairs of others count beside its own."""

    def __init__(self, path: Path, sharing: Sharing) -> None:
        super().__init__(path)
        self._sharing = sharing
        try:
            with as_study_error(sharing.where):
                sharing.publish(self.pairs)
        except BaseException:
            self.close()
            raise

    def append(self, pair: Pair) -> None:
        """Write the pair, wait until it is on disk, and put it up for the others."""
        super().append(pair)
        with as_study_error(self._sharing.where):
            self._sharing.publish(self.pairs)

    def of(self, phase: str, setting: Setting | None = None) -> list[Pair]:
        """The pairs of a phase, of one setting if given, this tuner's before those of others."""
        own = super().of(phase, setting)
        if phase not in _SHARED_PHASES:
            return own
        with as_study_error(self._sharing.where):
            others = self._sharing.pairs_of_others()
        for name in dict.fromkeys(pair.by for pair in others):
            own += pairs_of([pair for pair in others if pair.by == name], phase, setting)
        return own
