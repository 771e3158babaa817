"""Three tables beside Optuna's: who tunes a study, who measures which setting, and all pairs.

Ages are told by the database's clock, because those of hosts differ.
"""

import functools
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import psutil
import sqlalchemy
from sqlalchemy import Column, Float, Integer, String, Table, Text

from hvdtune.tuner.storage.database import patiently
from hvdtune.tuner.storage.ownership import lock_study_id
from hvdtune.tuner.storage.pair_log import Pair, format_pair, parse_pair

_METADATA: Final = sqlalchemy.MetaData()
TUNERS: Final = Table(
    "hvdtune_tuners",
    _METADATA,
    Column("study_id", Integer, primary_key=True, autoincrement=False),
    Column("tuner", String(36), primary_key=True),
    Column("name", Text, nullable=False),
    Column("place", String(64), nullable=False),
    Column("pid", Integer, nullable=False),
    Column("started", Float(53), nullable=False),
    Column("fingerprint", String(16), nullable=False),
    Column("beat_unix", Float(53), nullable=False),
    Column("left_unix", Float(53), nullable=True),
)
LEASES: Final = Table(
    "hvdtune_claims",
    _METADATA,
    Column("study_id", Integer, primary_key=True, autoincrement=False),
    Column("setting", String(64), primary_key=True),
    Column("tuner", String(36), nullable=False),
    Column("trial", Integer, nullable=False),
)
PAIRS: Final = Table(
    "hvdtune_pairs",
    _METADATA,
    Column("study_id", Integer, primary_key=True, autoincrement=False),
    Column("tuner", String(36), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("record", Text, nullable=False),
)
_NOW: Final = {
    "sqlite": "((julianday('now') - 2440587.5) * 86400.0)",
    "postgresql": "EXTRACT(EPOCH FROM clock_timestamp())",
    "mysql": "UNIX_TIMESTAMP(NOW(3))",
}
# A tuner that has been silent for so long is dead, unless its study says otherwise.
DEAD_AFTER_S: Final = 90.0


@dataclass(frozen=True)
class Tuner:
    """One that has taken part in a study; `age_s` since it last said that it is alive."""

    id: str
    name: str
    fingerprint: str
    age_s: float
    alive: bool


@dataclass(frozen=True)
class Lease:
    """`tuner` measures the setting of that digest as its trial of that number."""

    setting: str
    tuner: str
    trial: int


class LeaseTable:
    """The rows of one study; may be used from any thread.

    Args:
        dead_after_s: a tuner that has been silent for so long is dead. One whose process is gone
            from this host is dead at once.
    """

    def __init__(
        self, engine: sqlalchemy.Engine, study_id: int, dead_after_s: float = DEAD_AFTER_S
    ) -> None:
        self._engine = engine
        self._study = study_id
        self._dead_after_s = dead_after_s

    @staticmethod
    def make_tables(engine: sqlalchemy.Engine) -> None:
        """Make the tables that are missing."""
        patiently(lambda: _METADATA.create_all(engine))

    @staticmethod
    def has_tables(engine: sqlalchemy.Engine) -> bool:
        """False where nobody has shared a study."""
        return sqlalchemy.inspect(engine).has_table(TUNERS.name)

    def is_used(self) -> bool:
        """Return whether the tables are there."""
        return self.has_tables(self._engine)

    def join(self, tuner: str, name: str, fingerprint: str) -> None:
        """This process is that tuner, and alive."""
        process = psutil.Process()
        with self._engine.begin() as connection:
            # `study delete` takes the same lock: it comes first, or finds this tuner.
            lock_study_id(connection, self._study)
            connection.execute(TUNERS.delete().where(self._of(TUNERS, tuner)))
            connection.execute(
                TUNERS.insert().values(
                    study_id=self._study,
                    tuner=tuner,
                    name=name,
                    place=place(),
                    pid=process.pid,
                    started=process.create_time(),
                    fingerprint=fingerprint,
                    beat_unix=self._now(),
                )
            )

    def heartbeat(self, tuner: str, *, leaves: bool = False) -> None:
        """Record that the tuner is alive, or that it `leaves`."""
        values = {"beat_unix": self._now(), "left_unix": self._now() if leaves else None}
        with self._engine.begin() as connection:
            connection.execute(TUNERS.update().where(self._of(TUNERS, tuner)).values(values))

    def tuners(self) -> list[Tuner]:
        """Return all tuners that have taken part, alive or not."""
        with self._engine.connect() as connection:
            return self.tuners_in(connection)

    def tuners_in(self, connection: sqlalchemy.Connection) -> list[Tuner]:
        """Return the same as `tuners`, within a transaction."""
        query = sqlalchemy.select(TUNERS, self._now().label("now")).where(
            TUNERS.c.study_id == self._study
        )
        return [self._tuner(row) for row in connection.execute(query)]

    def acquire(self, lease: Lease) -> Lease | None:
        """Take a lease; returns the lease of another tuner that holds the setting, if any."""
        try:
            with self._engine.begin() as connection:
                connection.execute(LEASES.insert().values(study_id=self._study, **_columns(lease)))
        except sqlalchemy.exc.IntegrityError:
            there = [known for known in self.leases() if known.setting == lease.setting]
            return there[0] if there else self.acquire(lease)
        return None

    def take_over(self, there: Lease, lease: Lease) -> bool:
        """Replace the lease `there` by this one; False if another tuner was quicker."""
        with self._engine.begin() as connection:
            done = connection.execute(
                LEASES.update()
                .where(self._of(LEASES, there.tuner))
                .where(LEASES.c.setting == there.setting, LEASES.c.trial == there.trial)
                .values(**_columns(lease))
            )
        return done.rowcount == 1

    def leases(self) -> list[Lease]:
        """All leases of the study, those of dead tuners included."""
        query = sqlalchemy.select(LEASES).where(LEASES.c.study_id == self._study)
        with self._engine.connect() as connection:
            rows = connection.execute(query).all()
        return [Lease(row.setting, row.tuner, row.trial) for row in rows]

    def release(self, tuner: str, trial: int | None = None) -> None:
        """Delete the leases of a tuner, or the one of one of its trials."""
        condition = self._of(LEASES, tuner)
        if trial is not None:
            condition &= LEASES.c.trial == trial
        with self._engine.begin() as connection:
            connection.execute(LEASES.delete().where(condition))

    def publish(self, tuner: str, pairs: Mapping[int, Pair]) -> None:
        """Puts up pairs of a tuner, by their number in its log."""
        rows = [
            {
                "study_id": self._study,
                "tuner": tuner,
                "number": number,
                "record": format_pair(pair),
            }
            for number, pair in pairs.items()
        ]
        if rows:
            with self._engine.begin() as connection:
                connection.execute(PAIRS.insert(), rows)

    def published(self, tuner: str) -> int:
        """Return how many pairs of its log a tuner has put up."""
        query = sqlalchemy.select(sqlalchemy.func.max(PAIRS.c.number))
        with self._engine.connect() as connection:
            last = connection.execute(query.where(self._of(PAIRS, tuner))).scalar()
        return 0 if last is None else last + 1

    def pairs(self, *, but: str = "", fingerprint: str | None = None) -> list[Pair]:
        """The pairs of all tuners but one, each tuner's in their order, marked by whom."""
        same = (TUNERS.c.study_id == PAIRS.c.study_id) & (TUNERS.c.tuner == PAIRS.c.tuner)
        query = (
            sqlalchemy.select(PAIRS.c.record, TUNERS.c.name)
            .select_from(PAIRS.join(TUNERS, same))
            .where(PAIRS.c.study_id == self._study, PAIRS.c.tuner != but)
            .order_by(PAIRS.c.tuner, PAIRS.c.number)
        )
        if fingerprint is not None:
            query = query.where(TUNERS.c.fingerprint == fingerprint)
        with self._engine.connect() as connection:
            rows = connection.execute(query).all()
        return [
            replace(parse_pair(row.record, f"a pair of {row.name}"), by=row.name) for row in rows
        ]

    def prune_stale(self) -> None:
        """Delete the rows of all tuners that are not alive."""
        for tuner in self.tuners():
            if not tuner.alive:
                with self._engine.begin() as connection:
                    for table in (LEASES, PAIRS, TUNERS):
                        connection.execute(table.delete().where(self._of(table, tuner.id)))

    def remove(self, connection: sqlalchemy.Connection) -> None:
        """Delete all rows of this study, within a transaction."""
        for table in (LEASES, PAIRS, TUNERS):
            connection.execute(table.delete().where(table.c.study_id == self._study))

    def _of(self, table: Table, tuner: str) -> sqlalchemy.ColumnElement[bool]:
        return sqlalchemy.and_(table.c.study_id == self._study, table.c.tuner == tuner)

    def _now(self) -> sqlalchemy.ColumnElement[float]:
        return sqlalchemy.literal_column(_NOW[self._engine.dialect.name], Float(53))

    def _tuner(self, row: Any) -> Tuner:
        age_s = max(0.0, float(row.now) - float(row.beat_unix))
        gone = row.place == place() and not _is_running(row.pid, row.started)
        alive = row.left_unix is None and not gone and age_s < self._dead_after_s
        return Tuner(row.tuner, row.name, row.fingerprint, age_s, alive)


def digest(text: str) -> str:
    """64 hexadecimal digits that differ for different texts."""
    return hashlib.sha256(text.encode()).hexdigest()


@functools.cache
def place() -> str:
    """Equal for processes that see each other's process numbers."""
    parts = (Path("/proc/sys/kernel/random/boot_id").read_text(), _pid_namespace())
    return digest("".join(parts))


def _pid_namespace() -> str:
    return str(Path("/proc/self/ns/pid").readlink())


def _is_running(pid: int, started: float) -> bool:
    try:
        return abs(psutil.Process(pid).create_time() - started) < 1.0
    except psutil.Error:
        return False


def _columns(lease: Lease) -> dict[str, Any]:
    return {"setting": lease.setting, "tuner": lease.tuner, "trial": lease.trial}
