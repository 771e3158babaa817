import itertools
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import databases

_NUMBERS = itertools.count()


@pytest.fixture(scope="session", params=["sqlite", "postgresql", "mysql"])
def server(request: pytest.FixtureRequest) -> Iterator[databases.Server | None]:
    """A database server of each kind, None for SQLite, which needs none."""
    if request.param == "sqlite":
        yield None
    else:
        with getattr(databases, request.param)() as server:
            yield server


@pytest.fixture
def study_url(server: databases.Server | None, tmp_path: Path) -> str:
    """The URL of a database for studies."""
    return server.url if server is not None else f"sqlite:///{tmp_path}/studies.db"


@pytest.fixture
def study_name() -> str:
    """One that the database does not have yet."""
    return f"study-{next(_NUMBERS)}"
