import math
import re
import statistics
from collections import Counter
from itertools import groupby
from pathlib import Path
from typing import Any

import optuna
import pytest

from hvdtune.core.config.knobs import Setting
from hvdtune.tuner.controller import tune
from hvdtune.tuner.measure.live_run import LiveRun
from hvdtune.tuner.measure.pair_runner import PairRunner
from hvdtune.tuner.measure.progress import Reporter, StudyProgress
from hvdtune.tuner.space.tune_options import TuneOptions
from hvdtune.tuner.stats.estimates import noise_of
from hvdtune.tuner.stats.verdict import Verdict
from hvdtune.tuner.storage.fsck import check
from hvdtune.tuner.storage.in_use import InUse
from hvdtune.tuner.storage.pair_log import Pair, PairLog, read_pairs
from hvdtune.tuner.storage.study_list import StudyPlace
from hvdtune.tuner.storage.study_reader import PAIRS_FILE
from hvdtune.tuner.study import Study
from tests.kit.simulated_job import DEFAULT, KNOBS, Script, SimulatedCluster

SAYS = "in use during the search"


class Bed:
    """A study over two hosts, and what it said."""

    def __init__(self, run_dir: Path, script: Script, *first: Setting) -> None:
        self.run_dir = run_dir
        self._script = script
        self._cluster = SimulatedCluster(script)
        self.messages: list[str] = []
        self._study = Study(self._cluster.start, KNOBS, DEFAULT, hosts=2, first_settings=first)

    def tune(self, trials: int = 14, **more: Any) -> Verdict:
        options = TuneOptions(trials=trials, **more)
        return tune(self._study, self.run_dir, options, self._note, self._cluster.clock).verdict

    @property
    def pairs(self) -> tuple[Pair, ...]:
        return read_pairs(self.run_dir / PAIRS_FILE)

    def _note(self, progress: StudyProgress) -> None:
        self.messages.append(progress.message)
        if progress.message.startswith("the study stopped"):
            self._script.steps_per_launch = 0  # the training would go on for ever


def hierarchy(setting: Setting) -> float:
    gain = math.log(1.9) if setting["hierarchical_allreduce"] else 0.0
    return gain + (0.1 if setting["cycle_time_ms"] < 0.5 else 0.0)


def test_what_is_nearly_twice_as_fast_is_used_while_the_search_goes_on(tmp_path: Path) -> None:
    bed = Bed(tmp_path, Script(gain=hierarchy))
    verdict = bed.tune()

    assert SAYS in "\n".join(bed.messages)
    compared = [pair for pair in bed.pairs if pair.reference != DEFAULT]
    assert len(compared) >= 8
    assert all(pair.reference["hierarchical_allreduce"] for pair in compared)
    assert {pair.phase for pair in compared} <= {"search", "race"}
    # Gains are over the default all the same, and so is what is proved.
    for pair in compared:
        assert pair.search_log_ratio == pytest.approx(hierarchy(pair.setting), abs=0.35)
    assert verdict.improved
    true_percent = 100 * math.expm1(hierarchy(verdict.setting))
    assert verdict.gain_percent == pytest.approx(true_percent, abs=10)


def test_a_study_with_a_better_reference_is_in_order(tmp_path: Path) -> None:
    bed = Bed(tmp_path, Script(gain=hierarchy))
    bed.tune()

    assert any(pair.reference != DEFAULT for pair in bed.pairs)
    assert check(StudyPlace("study", folder=tmp_path), KNOBS) == []


@pytest.mark.parametrize(
    "seed", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)]
)
def test_where_nothing_is_faster_trials_are_compared_with_the_default(
    tmp_path: Path, seed: int
) -> None:
    bed = Bed(tmp_path, Script(seed=seed, step_noise=0.15))
    bed.tune()

    assert SAYS not in "\n".join(bed.messages)
    assert all(pair.reference == DEFAULT for pair in bed.pairs)


def test_trials_take_as_many_pairs_as_the_noise_of_what_is_in_use_asks_for(tmp_path: Path) -> None:
    def noise(setting: Setting) -> float:
        return 0.0 if setting["hierarchical_allreduce"] else 0.25

    bed = Bed(tmp_path, Script(gain=hierarchy, own_noise=noise, step_noise=0.02))
    bed.tune(trials=24)

    calibrated = [pair.search_log_ratio for pair in bed.pairs if pair.phase == "calibrate"]
    by_default = math.ceil((noise_of(calibrated).sd / 0.0392) ** 2)
    compared = [p for p in bed.pairs if p.phase == "search" and p.reference != DEFAULT]
    last = [len(list(own)) for _, own in groupby(compared, key=lambda pair: pair.trial)][-3:]
    assert by_default >= 4
    assert max(last) < by_default


def test_once_a_setting_has_failed_trials_are_compared_with_the_default(tmp_path: Path) -> None:
    usual = DEFAULT["chunk_bytes"]
    bed = Bed(tmp_path, Script(gain=hierarchy, refuses=lambda each: each["chunk_bytes"] != usual))
    bed.tune()

    trials = [pair for pair in bed.pairs if pair.phase in ("search", "race")]
    assert any(pair.reference != DEFAULT for pair in trials)
    assert trials[-1].reference == DEFAULT
    assert "trials are compared with the default again" in bed.messages


class Killed(BaseException):
    """The tuner is no more."""


@pytest.mark.parametrize(
    "trial", [pytest.param(1, marks=pytest.mark.slow), 3, pytest.param(6, marks=pytest.mark.slow)]
)
def test_a_tuner_killed_while_it_ends_a_trial_is_followed_by_one_that_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trial: int
) -> None:
    tell = optuna.Study.tell

    def tell_or_die(study: optuna.Study, told: optuna.Trial, *args: Any, **kwargs: Any) -> Any:
        if told.number == trial:
            raise Killed
        return tell(study, told, *args, **kwargs)

    bed = Bed(tmp_path, Script(gain=hierarchy))
    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(optuna.Study, "tell", tell_or_die)
        bed.tune()
    until_death = len(bed.messages)

    assert bed.tune().improved
    assert SAYS in "\n".join(bed.messages[until_death:])


def test_a_failure_is_remembered_by_the_tuner_after_one_that_was_killed(tmp_path: Path) -> None:
    usual = DEFAULT["chunk_bytes"]
    script = Script(gain=hierarchy, refuses=lambda each: each["chunk_bytes"] != usual)
    bed = Bed(tmp_path, script)
    note, until_death = bed._note, "trials are compared with the default again"

    def note_and_die(progress: StudyProgress) -> None:
        note(progress)
        if progress.message == until_death:
            raise Killed

    bed._note = note_and_die  # type: ignore[method-assign]
    with pytest.raises(Killed):
        bed.tune()
    before = len(bed.pairs)
    script.refuses = lambda each: False

    bed.tune()
    later = bed.pairs[before:]
    assert any(pair.phase == "search" for pair in later)
    assert all(pair.reference == DEFAULT for pair in later)


def test_a_study_that_is_continued_goes_on_with_what_it_had_in_use(tmp_path: Path) -> None:
    better = {**DEFAULT, "hierarchical_allreduce": True}
    trial = {**better, "cycle_time_ms": 0.0}
    with PairLog(tmp_path / PAIRS_FILE) as log:
        assert runner(log).in_use == InUse(DEFAULT)
        log.append(
            Pair(
                0, "search", 5, trial, better, 0.07, 9.3, 10.0, 96, "ABBA", 1.5,
                reference_log_ratio=0.6,
            )
        )  # fmt: skip
        assert runner(log).in_use == InUse(better, 0.6)
    assert log.pairs[0].search_log_ratio == pytest.approx(0.67)


def test_trials_that_are_soon_faster_are_not_counted_at_the_pace_of_a_slow_default(
    tmp_path: Path,
) -> None:
    def eight_times(setting: Setting) -> float:
        return math.log(8.0) if setting["hierarchical_allreduce"] else 0.0

    # A pair of two slow settings takes 7 s: in the time for the search there would be eight.
    bed = Bed(tmp_path, Script(gain=eight_times, step_s=0.25))
    verdict = bed.tune(trials=40, time_budget_s=180.0)

    assert verdict.improved
    assert verdict.launches >= 3
    assert len({pair.trial for pair in bed.pairs if pair.phase == "search"}) > 12


def test_a_gain_of_many_times_is_used_however_noisy_pairs_are(tmp_path: Path) -> None:
    def eight_times(setting: Setting) -> float:
        return math.log(8.0) if setting["hierarchical_allreduce"] else 0.0

    noisy = Script(gain=eight_times, step_s=0.25, step_noise=1.0, slow_noise=0.1, seed=8)
    bed = Bed(tmp_path, noisy)
    verdict = bed.tune(trials=40, time_budget_s=180.0)

    read = [pair.search_log_ratio for pair in bed.pairs if pair.phase == "calibrate"]
    assert statistics.stdev(read) > 0.2
    assert SAYS in "\n".join(bed.messages)
    assert verdict.improved


def with_few_pairs(tmp_path: Path, gain: float, step_s: float) -> tuple[Verdict, Bed]:
    def by_hierarchy(setting: Setting) -> float:
        return gain if setting["hierarchical_allreduce"] else 0.0

    first = {**DEFAULT, "hierarchical_allreduce": True}
    bed = Bed(tmp_path, Script(gain=by_hierarchy, step_s=step_s), first)
    return bed.tune(trials=40, time_budget_s=180.0), bed


def test_where_pairs_are_few_a_large_gain_is_verified_at_once(tmp_path: Path) -> None:
    verdict, bed = with_few_pairs(tmp_path, math.log(8.0), step_s=1.3)
    pairs = Counter(pair.phase for pair in bed.pairs)
    assert verdict.improved
    assert SAYS not in "\n".join(bed.messages)
    assert (pairs["calibrate"], pairs["verify"]) == (3, 6)
    assert {pair.steps for pair in bed.pairs} == {8}  # four blocks of two


def test_what_cannot_be_verified_in_the_time_left_is_not_begun(tmp_path: Path) -> None:
    verdict, bed = with_few_pairs(tmp_path, 0.1, step_s=1.5)
    assert "too short to verify hierarchical_allreduce=true with 8 pairs" in verdict.text
    assert re.search(r"increase --time-budget by \d+s", verdict.text)
    assert Counter(pair.phase for pair in bed.pairs) == {"calibrate": 3, "search": 1}


def test_a_large_gain_that_cannot_be_verified_in_time_is_used(tmp_path: Path) -> None:
    verdict, _ = with_few_pairs(tmp_path, math.log(8.0), step_s=1.5)
    assert "with 6 pairs of" in verdict.text
    assert verdict.setting["hierarchical_allreduce"]
    assert verdict.expected is not None


def runner(log: PairLog) -> PairRunner:
    cluster = SimulatedCluster(Script())
    reporter = Reporter(None, cluster.clock, 1, 1e9)
    live = LiveRun(cluster.start, DEFAULT, TuneOptions(), cluster.clock, reporter)
    return PairRunner(live, log, reporter, DEFAULT)
