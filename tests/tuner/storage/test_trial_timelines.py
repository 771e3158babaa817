from collections.abc import Iterator
from pathlib import Path

import pytest

from hvdtune.timeline import read
from hvdtune.tuner.storage.study_store import TrialOutcome
from hvdtune.tuner.storage.trial_timelines import latest_rank_files
from tests.tuner.traced_study import TracedStudy


@pytest.fixture
def bed(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[TracedStudy]:
    bed = TracedStudy(tmp_path, getattr(request, "param", 2))
    with bed.store:
        yield bed


def test_a_timeline_holds_the_last_pair_of_its_trial_on_every_rank(bed: TracedStudy) -> None:
    for _ in range(3):
        last = bed.run_trial()
    (artifact,) = bed.artifacts()[last]
    trace = read(bed.run_dir / "artifacts" / artifact)
    kinds = trace.events.groupby("rank")["kind"].value_counts()
    assert [kinds[rank]["STEP"] for rank in (0, 1)] == [20, 20]
    adopted = trace.events[trace.events["kind"] == "KNOB_ADOPTED"]
    assert sorted(adopted["arg"].unique()) == [9, 10, 11, 12]
    assert trace.warnings == []


@pytest.mark.parametrize(
    ("bed", "kept"),
    [
        pytest.param(2, [1, 3, 4], id="of-the-last-two-and-of-the-best"),
        pytest.param(0, [], id="none"),
    ],
    indirect=["bed"],
)
def test_timelines_are_kept_of_as_many_trials_as_wanted(bed: TracedStudy, kept: list[int]) -> None:
    trials = [bed.run_trial(gain) for gain in (0.0, 0.05, 0.01, 0.02, 0.0)]
    found = bed.artifacts()
    assert sorted(found) == [trials[index] for index in kept]
    folder = bed.run_dir / "artifacts"
    assert folder.exists() == bool(kept)
    artifacts = {artifact for each in found.values() for artifact in each}
    assert {path.name for path in folder.glob("*")} == artifacts


def test_a_trace_without_the_setting_is_not_taken_for_it(bed: TracedStudy) -> None:
    first = bed.run_trial()
    number, _ = bed.store.ask()
    bed.store.tell(number, TrialOutcome("complete", 0.0, 0.01, 3))
    assert sorted(bed.artifacts()) == [first]


def test_a_trace_that_cannot_be_read_costs_no_trial(bed: TracedStudy) -> None:
    bed.launch.joinpath("rank-0.hvt").write_bytes(b"nonsense")
    for _ in range(2):
        number, _ = bed.store.ask()
        bed.store.tell(number, TrialOutcome("complete", 0.0, 0.01, 3))
    assert bed.store.measured_trials == 2
    assert len(bed.said) == 1
    assert bed.said[0].startswith("timelines of trials are not kept: ")


def test_the_traces_of_the_latest_launch_and_job_are_taken(tmp_path: Path) -> None:
    for name in ("launch-2/rank-0.hvt", "launch-10/rank-0.hvt", "launch-10/rank-0-job1.hvt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert latest_rank_files(tmp_path) == [tmp_path / "launch-10" / "rank-0-job1.hvt"]
    assert latest_rank_files(tmp_path / "nothing") == []
