import json
from pathlib import Path

import optuna
import pytest
from simulated_job import DEFAULT, KNOBS

from hvdtune.timeline import read
from hvdtune.tuner.options import TuneOptions
from hvdtune.tuner.space import make_space
from hvdtune.tuner.store import Outcome, StudyStore
from hvdtune.tuner.timelines import TrialTimelines, latest_rank_files
from hvdtune.tuner.trials import artifacts_of
from tests.timeline import rank_files

SPACE = make_space(KNOBS, DEFAULT)
MS = 1_000_000


class Bed:
    """A study whose ranks have left traces; each trial is one pair, ABBA, of blocks of 5 steps."""

    def __init__(self, run_dir: Path, keep: int) -> None:
        self.said: list[str] = []
        self.run_dir = run_dir
        self.launch = run_dir / "ranks" / "launch-0"
        self.launch.mkdir(parents=True)
        self._versions: list[dict[str, object]] = []
        timelines = TrialTimelines(run_dir, keep, self.said.append)
        self.store = StudyStore(run_dir, SPACE, TuneOptions(trials=20), timelines=timelines)

    def run_trial(self, gain: float = 0.0) -> int:
        number, setting = self.store.ask()
        self._versions += [DEFAULT, setting, setting, DEFAULT]
        for rank in (0, 1):
            (self.launch / f"rank-{rank}.hvt").write_bytes(self._trace(rank))
        self.store.tell(number, Outcome("complete", gain, 0.01, 3))
        return number

    def artifacts(self) -> dict[int, list[str]]:
        study = optuna.load_study(
            study_name="hvdtune", storage=f"sqlite:///{self.run_dir / 'study.db'}"
        )
        return {trial.number: artifacts_of(trial) for trial in study.trials if artifacts_of(trial)}

    def _trace(self, rank: int) -> bytes:
        names = {i: json.dumps(setting) for i, setting in enumerate(self._versions, 1)}
        records = [rank_files.clock(MS, 0)]
        for version in names:
            begin = 1000 * MS * version
            records.append(rank_files.record("KNOB_ADOPTED", begin, name=version, arg=version))
            for step in range(5):
                at = begin + (1 + 10 * step) * MS
                records.append(rank_files.record("STEP", at, at + 9 * MS, seq=step))
        return (
            rank_files.header()
            + rank_files.metadata(rank, size=2)
            + rank_files.names(names)
            + rank_files.block(rank_files.RECORDS, b"".join(records))
        )


@pytest.fixture
def bed(tmp_path: Path, request: pytest.FixtureRequest):
    bed = Bed(tmp_path, getattr(request, "param", 2))
    with bed.store:
        yield bed


def test_a_timeline_holds_the_last_pair_of_its_trial_on_every_rank(bed: Bed) -> None:
    for _ in range(3):
        last = bed.run_trial()
    (artifact,) = bed.artifacts()[last]
    trace = read(bed.run_dir / "artifacts" / artifact)
    kinds = trace.events.groupby("rank")["kind"].value_counts()
    assert [kinds[rank]["STEP"] for rank in (0, 1)] == [20, 20]
    adopted = trace.events[trace.events["kind"] == "KNOB_ADOPTED"]
    assert sorted(adopted["arg"].unique()) == [9, 10, 11, 12]
    assert trace.warnings == []


def test_those_of_the_last_trials_and_of_the_best_are_kept(bed: Bed) -> None:
    trials = [bed.run_trial(gain) for gain in (0.0, 0.05, 0.01, 0.02, 0.0)]
    kept = bed.artifacts()
    assert sorted(kept) == [trials[1], trials[3], trials[4]]
    files = {path.name for path in (bed.run_dir / "artifacts").iterdir()}
    assert files == {artifact for each in kept.values() for artifact in each}


@pytest.mark.parametrize("bed", [0], indirect=True)
def test_none_is_kept_where_none_is_wanted(bed: Bed) -> None:
    bed.run_trial()
    assert not (bed.run_dir / "artifacts").exists()


def test_a_trace_without_the_setting_is_not_taken_for_it(bed: Bed) -> None:
    first = bed.run_trial()
    number, _ = bed.store.ask()
    bed.store.tell(number, Outcome("complete", 0.0, 0.01, 3))
    assert sorted(bed.artifacts()) == [first]


def test_a_trace_that_cannot_be_read_costs_no_trial(bed: Bed) -> None:
    bed.launch.joinpath("rank-0.hvt").write_bytes(b"nonsense")
    for _ in range(2):
        number, _ = bed.store.ask()
        bed.store.tell(number, Outcome("complete", 0.0, 0.01, 3))
    assert bed.store.measured_trials == 2
    assert len(bed.said) == 1
    assert bed.said[0].startswith("timelines of trials are not kept: ")


def test_the_traces_of_the_latest_launch_and_job_are_taken(tmp_path: Path) -> None:
    for name in ("launch-2/rank-0.hvt", "launch-10/rank-0.hvt", "launch-10/rank-0-job1.hvt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert latest_rank_files(tmp_path) == [tmp_path / "launch-10" / "rank-0-job1.hvt"]
    assert latest_rank_files(tmp_path / "nothing") == []
