"""A shared study whose database goes away."""

import gc
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from hvdtune.errors import StudyError
from hvdtune.tuner.controller import tune
from hvdtune.tuner.measure.progress import StudyProgress
from hvdtune.tuner.space.tune_options import TuneOptions
from hvdtune.tuner.storage.shared_study import SharedStudy
from hvdtune.tuner.storage.study_reader import read_study
from hvdtune.tuner.study import Study
from tests.kit.simulated_job import DEFAULT, KNOBS, Script, SimulatedCluster
from tests.tuner import databases

# PyMySQL leaves a socket that it could not connect to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

OPTIONS = TuneOptions(trials=4)


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    yield
    gc.collect()


@pytest.mark.parametrize("kind", [databases.postgresql, databases.mysql])
def test_training_goes_on_when_the_server_is_gone_and_the_study_when_it_is_back(
    kind: Callable[[], AbstractContextManager[databases.Server]], tmp_path: Path
) -> None:
    cluster = SimulatedCluster(Script(steps_per_launch=5000))
    with kind() as server:
        study = Study(cluster.start, KNOBS, DEFAULT, share=SharedStudy(server.url, "study"))

        def stop_in_the_search(progress: StudyProgress) -> None:
            if progress.phase == "search" and progress.trial == 2:
                server.stop()

        with pytest.raises(StudyError) as failure:
            tune(study, tmp_path, OPTIONS, stop_in_the_search, cluster.clock)
        assert "\n" not in str(failure.value)
        assert str(failure.value).startswith(server.url.split("?")[0])
        assert cluster.jobs[-1].setting == DEFAULT
        assert not cluster.jobs[-1].terminated
        before = (tmp_path / "pairs.jsonl").read_text()
        server.start()
        tune(study, tmp_path, OPTIONS, clock=cluster.clock)
        assert (tmp_path / "pairs.jsonl").read_text().startswith(before)
        assert len(read_study(tmp_path).pairs) > before.count("\n")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("postgresql://tuner@/studies?host=/proc/absent", "No such file"),
        ("mysql://tuner@localhost/studies?unix_socket=/proc/absent", "Can't connect"),
        ("sqlite:////proc/absent/studies.db", "unable to open database file"),
    ],
)
def test_a_database_that_cannot_be_reached_is_one_line(
    tmp_path: Path, url: str, message: str
) -> None:
    pytest.importorskip("psycopg")
    pytest.importorskip("pymysql")
    cluster = SimulatedCluster(Script())
    study = Study(cluster.start, KNOBS, DEFAULT, share=SharedStudy(url, "study"))
    with pytest.raises(StudyError, match=message) as failure:
        tune(study, tmp_path, OPTIONS, clock=cluster.clock)
    assert "\n" not in str(failure.value)
    assert cluster.jobs == []
