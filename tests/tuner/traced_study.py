"""A study whose ranks have left traces, written byte by byte."""

import json
from pathlib import Path

import optuna

from hvdtune.tuner.space.search_space import make_space
from hvdtune.tuner.space.tune_options import TuneOptions
from hvdtune.tuner.storage.study_store import StudyStore, TrialOutcome
from hvdtune.tuner.storage.trial import artifacts_of
from hvdtune.tuner.storage.trial_timelines import TrialTimelines
from tests.kit import rank_files
from tests.kit.simulated_job import DEFAULT, KNOBS

SPACE = make_space(KNOBS, DEFAULT)
MS = 1_000_000


class TracedStudy:
    """Each trial is one pair, ABBA, of blocks of 5 steps, on two ranks."""

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
        self.store.tell(number, TrialOutcome("complete", gain, 0.01, 3))
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
