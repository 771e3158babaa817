import itertools
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from hvdtune.tuner.controller import tune
from hvdtune.tuner.space.tune_options import TuneOptions
from hvdtune.tuner.study import Study
from tests.kit.simulated_job import DEFAULT, KNOBS, Script, SimulatedCluster
from tests.tuner import databases

_NUMBERS = itertools.count()
_MEMORY = Path("/dev/shm")


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """In memory where there is room: every pair and every trial is synced, and disks are slow."""
    has_room = _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > 2**28
    with tempfile.TemporaryDirectory(
        prefix="hvdtune-test-", dir=_MEMORY if has_room else None
    ) as folder:
        yield Path(folder)


@pytest.fixture(
    scope="session", params=[pytest.param("sqlite", marks=pytest.mark.slow), "postgresql", "mysql"]
)
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


@pytest.fixture(scope="session")
def _tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tuned") / "run"
    cluster = SimulatedCluster(Script(gain=lambda setting: 0.1 * (setting["cycle_time_ms"] < 1)))
    options = TuneOptions(trials=6, seed=2)
    verdict = tune(Study(cluster.start, KNOBS, DEFAULT), folder, options, clock=cluster.clock)
    assert verdict.verdict.improved
    return folder


@pytest.fixture
def finished_run(_tuned: Path, tmp_path: Path) -> Path:
    """The folder of a study that is over; it may be changed."""
    return Path(shutil.copytree(_tuned, tmp_path / "runs" / "train-1"))
