"""Where a study is stored: a file in the run's folder, or a database that a URL names."""

import contextlib
import random
import shlex
import sqlite3
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, TypeVar

import optuna
import sqlalchemy

from hvdtune.errors import StudyError, UsageError

_BUSY_TIMEOUT_S: Final = 60
_CONNECT_TIMEOUT_S: Final = 10
_CREATE_TRIES: Final = 6
# Backend, the driver it is used with, and the extra of this package that brings it.
_DRIVERS: Final = {
    "sqlite": ("pysqlite", "sqlite3", ""),
    "postgresql": ("psycopg", "psycopg", "postgresql"),
    "mysql": ("pymysql", "pymysql", "mysql"),
    "mariadb": ("pymysql", "pymysql", "mysql"),
}
_T = TypeVar("_T")


def parse_url(text: str) -> sqlalchemy.URL:
    """The URL of a database, with the driver that hvdtune uses for it.

    Raises UsageError when it is no URL, of an unknown kind, or its driver is not installed.
    """
    try:
        url = sqlalchemy.make_url(text)
    except (sqlalchemy.exc.ArgumentError, ValueError):
        raise UsageError(
            "The storage is not a URL such as sqlite:///studies.db, postgresql://user@host/name "
            "or mysql://user@host/name"
        ) from None
    backend = url.get_backend_name()
    if backend == "sqlite" and url.database in (None, "", ":memory:"):
        raise UsageError("a study in memory is lost with its tuner: name a file, sqlite:///FILE")
    if backend not in _DRIVERS:
        raise UsageError(
            f"hvdtune cannot store studies in {backend}; supported are {', '.join(_DRIVERS)}"
        )
    driver, module, extra = _DRIVERS[backend]
    if "+" in url.drivername and url.drivername != f"{backend}+{driver}":
        raise UsageError(
            f"{url.drivername}: hvdtune connects to {backend} only with the driver {driver}"
        )
    if find_spec(module) is None:
        raise UsageError(f"{backend} needs {module}: pip install 'hvdtune[{extra}]'")
    # Optuna knows MariaDB as MySQL only.
    kind = "mysql" if backend == "mariadb" else backend
    return url.set(drivername=kind if kind == "sqlite" else f"{kind}+{driver}")


def file_url(path: Path) -> sqlalchemy.URL:
    """The URL of a SQLite file."""
    return sqlalchemy.URL.create("sqlite", database=str(path))


def shown_url(url: sqlalchemy.URL | str) -> str:
    """Return the URL for messages, without the password and the driver's name."""
    parsed = sqlalchemy.make_url(url)
    return parsed.set(drivername=parsed.get_backend_name()).render_as_string(hide_password=True)


def open_storage(url: sqlalchemy.URL, *, create: bool = False) -> optuna.storages.RDBStorage:
    """Optuna's storage there; with `create` its tables are made where they are missing.

    To be called within `as_study_error`. Raises StudyError if the file is missing or has the tables
    of another version of Optuna.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    if url.get_backend_name() == "sqlite":
        path = Path(url.database or "")
        if create:
            _make_wal(path)
        elif not path.is_file():
            raise StudyError(f"no database {path}")

    def opened() -> optuna.storages.RDBStorage:
        return optuna.storages.RDBStorage(
            url.render_as_string(hide_password=False),
            engine_kwargs=_engine_options(url),
            skip_table_creation=not create,
            skip_compatibility_check=True,
        )

    storage = patiently(opened) if create else opened()
    try:
        _check_schema(storage, url)
    except BaseException:
        close_storage(storage)
        raise
    return storage


@contextlib.contextmanager
def connected(url: sqlalchemy.URL) -> Iterator[sqlalchemy.Connection]:
    """A connection to a database that may lack Optuna's tables."""
    engine = sqlalchemy.create_engine(url, **_engine_options(url))
    try:
        with engine.connect() as connection:
            yield connection
    finally:
        engine.dispose()


def close_storage(storage: optuna.storages.RDBStorage) -> None:
    """Closes all of its connections."""
    storage.remove_session()
    storage.engine.dispose()


@contextlib.contextmanager
def opened_storage(
    url: sqlalchemy.URL, *, create: bool = False
) -> Iterator[optuna.storages.RDBStorage]:
    """As `open_storage`; leaving it closes the connections."""
    storage = open_storage(url, create=create)
    try:
        yield storage
    finally:
        close_storage(storage)


def patiently(create: Callable[[], _T]) -> _T:
    """Creates something in a database where others may be creating the same at this moment."""
    for attempt in range(_CREATE_TRIES - 1):
        try:
            return create()
        except sqlalchemy.exc.DBAPIError as error:
            if error.connection_invalidated or not _is_collision(error):
                raise
            time.sleep(random.uniform(0.05, 0.2) * 2**attempt)
    return create()


@contextlib.contextmanager
def as_study_error(where: str | Path) -> Iterator[None]:
    """Raises what a database raises as a StudyError of one line that names `where`."""
    try:
        yield
    except (
        sqlite3.Error,
        sqlalchemy.exc.SQLAlchemyError,
        optuna.exceptions.StorageInternalError,
    ) as error:
        raise StudyError(f"{where}: {_sentence(error)}") from error


def _check_schema(storage: optuna.storages.RDBStorage, url: sqlalchemy.URL) -> None:
    found, needed = storage.get_current_version(), storage.get_head_version()
    if found == needed:
        return
    if found in storage.get_all_versions():
        place = url.render_as_string(hide_password=True)
        advice = f"make a backup, then run: optuna storage upgrade --storage {shlex.quote(place)}"
    else:
        advice = "a newer Optuna made it; run: pip install --upgrade optuna"
    raise StudyError(
        f"{shown_url(url)} has Optuna's schema {found}, but Optuna {optuna.__version__} needs "
        f"{needed}: {advice}"
    )


def _engine_options(url: sqlalchemy.URL) -> dict[str, Any]:
    if url.get_backend_name() == "sqlite":
        return {"connect_args": {"timeout": _BUSY_TIMEOUT_S}}
    return {
        # A connection that the server has closed meanwhile is replaced and not an error.
        "pool_pre_ping": True,
        # PostgreSQL's own. MySQL's and MariaDB's repeatable read ends a transaction in an error
        # (1020, "record has changed since last read") where another tuner was quicker.
        "isolation_level": "READ COMMITTED",
        "connect_args": {"connect_timeout": _CONNECT_TIMEOUT_S},
    }


def _make_wal(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path, timeout=_BUSY_TIMEOUT_S)) as database:
        database.execute("PRAGMA journal_mode=WAL")


def _is_collision(error: sqlalchemy.exc.DBAPIError) -> bool:
    text = str(error.orig).lower()
    return any(word in text for word in ("exist", "duplicate", "locked", "deadlock", "unique"))


def _sentence(error: BaseException) -> str:
    while isinstance(error.__cause__, Exception):
        error = error.__cause__
    if isinstance(error, sqlalchemy.exc.DBAPIError) and error.orig is not None:
        error = error.orig
    # PyMySQL's arguments are (number, text); others have a text of several lines.
    text = str(error.args[-1] if len(error.args) == 2 else error)
    return " ".join(text.split()) or type(error).__name__
