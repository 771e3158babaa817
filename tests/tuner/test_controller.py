import json
import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from hvdtune.core.config.knobs import Setting
from hvdtune.core.job.channel import Closed
from hvdtune.errors import StudyError, UsageError
from hvdtune.tuner.controller import TuneResult, follow, tune
from hvdtune.tuner.measure.progress import Phase, StudyProgress
from hvdtune.tuner.measure.run import ScriptFailed
from hvdtune.tuner.results.profile import read_profile
from hvdtune.tuner.space.search_space import describe
from hvdtune.tuner.space.tune_options import (
    ONE_RUN,
    LimitOptions,
    PairOptions,
    ProofOptions,
    TuneOptions,
)
from hvdtune.tuner.storage.study_store import read_study
from hvdtune.tuner.study import Study
from tests.kit.simulated_job import DEFAULT, KNOBS, Script, SimulatedCluster, SimulatedJob
from tests.tuner.measure.test_step_tensors import steps, trace
from tests.tuner.verdict_rates import bimodal

# A study that has little left keeps as much as verification needs; a race comes on top of that.
SHORT_RACE: dict[str, Any] = {"pairs": PairOptions(race_entrants=2, race=1)}
NOISY = Script(step_noise=0.4, slow_noise=0.1)


def faster_with_short_cycles(setting: Setting) -> float:
    cycle_ms = float(setting["cycle_time_ms"])
    gain = 0.08 - 0.03 * abs(math.log10((cycle_ms + 0.01) / 0.2))
    return gain - (1.5 if setting["fusion_threshold_bytes"] == 0 else 0.0)


class Stopped(BaseException):
    """The tuner is ended from outside."""


class Bed:
    """A study in a temporary directory, and everything it said."""

    def __init__(self, run_dir: Path, script: Script) -> None:
        self.run_dir = run_dir
        self.cluster = SimulatedCluster(script)
        self.said: list[StudyProgress] = []
        self.stops_in: Phase | None = None
        self.first_settings: list[Setting] = []
        self.traces: list[Path] = []

    def tune(self, **options: Any) -> TuneResult:
        study = Study(
            self.cluster.start,
            KNOBS,
            DEFAULT,
            fingerprint={"hvdtune": "0"},
            first_settings=self.first_settings,
            host=self.cluster,
            traces=lambda launch: self.traces,
        )
        chosen = TuneOptions(**{"trials": 12, **options})
        return tune(study, self.run_dir, chosen, self.take, self.cluster.clock)

    def take(self, progress: StudyProgress) -> None:
        self.said.append(progress)
        if progress.phase == self.stops_in:
            raise Stopped

    def tune_one_run(self, trials: int) -> TuneResult:
        study = Study(self.cluster.start, KNOBS, DEFAULT)
        chosen = replace(ONE_RUN, trials=trials, time_budget_s=86400.0)
        return tune(study, self.run_dir, chosen, self.said.append, self.cluster.clock)

    @property
    def job(self) -> SimulatedJob:
        return self.cluster.jobs[-1]

    @property
    def messages(self) -> str:
        return "\n".join(progress.message for progress in self.said)

    def assert_search_ended_because(self, reason: str) -> None:
        """As it is said, and in the report."""
        assert f"the search ends: {reason}" in self.messages
        assert f"It ended because {reason}" in (self.run_dir / "report.md").read_text()


def test_a_faster_setting_is_found_proved_and_left_in_force(tmp_path: Path) -> None:
    bed = Bed(tmp_path, Script(gain=faster_with_short_cycles))
    result = bed.tune(trials=20)

    assert result.verdict.improved
    assert result.verdict.pairs >= 20
    assert result.verdict.launches >= 3
    assert result.job is bed.job
    assert bed.job.proposed[-1] == result.verdict.setting
    assert bed.job.poll() is None
    true_gain = 100 * math.expm1(faster_with_short_cycles(result.verdict.setting))
    assert result.verdict.ci_percent is not None
    assert result.verdict.ci_percent[0] < true_gain < result.verdict.ci_percent[1]


def test_the_results_are_on_disk(tmp_path: Path) -> None:
    bed = Bed(tmp_path, Script(gain=faster_with_short_cycles))
    verdict = bed.tune().verdict

    profile = read_profile(tmp_path / "profile.yaml", KNOBS)
    assert profile.setting == verdict.setting
    assert profile.verdict.text == verdict.text
    assert profile.fingerprint == {"world": 2, "hosts": ["localhost"], "hvdtune": "0"}
    assert json.loads((tmp_path / "verdict.json").read_text())["text"] == verdict.text
    assert verdict.text in (tmp_path / "report.md").read_text()
    view = read_study(tmp_path)
    assert view.verdict is not None
    assert view.verdict["kind"] == verdict.kind
    assert view.noise_floor_percent == verdict.noise_floor_percent
    assert view.trials[0].setting == DEFAULT
    assert view.verdict["advice"] == verdict.advice
    said = f"\n\n**{verdict.in_use}**\n\n{verdict.advice}\n"
    assert said in (tmp_path / "report.md").read_text()


def test_lucky_readings_are_not_believed_and_the_verified_setting_is(tmp_path: Path) -> None:
    Bed(tmp_path / "equal", Script(step_noise=0.15, slow_noise=0.03)).tune()
    equal = read_study(tmp_path / "equal")
    trials = [trial for trial in equal.trials if trial.number in equal.beliefs]
    luckiest = max(trials, key=lambda trial: trial.log_ratio)
    believed = equal.beliefs[luckiest.number]
    assert luckiest.gain_percent is not None
    assert believed.gain_percent < luckiest.gain_percent / 2
    assert believed.low_percent < 0 < believed.high_percent

    verdict = (
        Bed(tmp_path / "better", Script(gain=faster_with_short_cycles)).tune(trials=20).verdict
    )
    better = read_study(tmp_path / "better")
    verified = next(trial for trial in better.trials if trial.setting == verdict.candidate)
    believed, true_gain = (
        better.beliefs[verified.number],
        faster_with_short_cycles(verified.setting),
    )
    assert believed.low_percent < 100 * math.expm1(true_gain) < believed.high_percent
    default = next(trial for trial in better.trials if trial.setting == DEFAULT)
    assert default.number not in better.beliefs
    row = f"| {verified.number} | {believed.gain_percent:+.1f} | {believed.interval_text} | "
    assert row in (tmp_path / "better" / "report.md").read_text()
    assert (
        f"| {default.number} | 0 | by definition | "
        in (tmp_path / "better" / "report.md").read_text()
    )


@pytest.mark.parametrize(
    ("script", "trials", "code", "text"),
    [
        (NOISY, 6, 4, "too noisy to decide: 5 settings tried"),
        (NOISY, 1, 4, "too noisy to decide: no other setting was measured; reduce the"),
        (Script(), 1, 3, "nothing is proved: no other setting was measured"),
        (
            Script(gain=lambda setting: -0.3),
            12,
            3,
            "11 settings tried, none likely to be 1 % faster",
        ),
    ],
    ids=["too-noisy-to-decide", "too-noisy-and-none-tried", "none-tried", "all-slower"],
)
def test_without_an_expected_gain_the_default_stays(
    tmp_path: Path, script: Script, trials: int, code: int, text: str
) -> None:
    bed = Bed(tmp_path, script)
    verdict = bed.tune(trials=trials).verdict

    assert verdict.exit_code == code
    assert text in verdict.text
    assert bed.job.proposed[-1] == DEFAULT
    assert verdict.in_use == "in use: the default"
    assert read_profile(tmp_path / "profile.yaml", KNOBS).setting == DEFAULT
    verified = [pair for pair in read_study(tmp_path).pairs if pair.phase == "verify"]
    assert bool(verified) == (verdict.candidate is not None)


def test_a_setting_that_is_most_likely_better_is_used_and_not_claimed(tmp_path: Path) -> None:
    def a_little(setting: Setting) -> float:
        return 0.02 if float(setting["cycle_time_ms"]) < 0.9 else -0.2

    chosen = []
    for seed in range(3):
        bed = Bed(tmp_path / str(seed), Script(seed=seed, gain=a_little, step_noise=0.12))
        verdict = bed.tune(trials=16, seed=seed, proof=ProofOptions(max_pairs=20)).verdict
        profile = read_profile(bed.run_dir / "profile.yaml", KNOBS)
        assert bed.job.proposed[-1] == verdict.setting == profile.setting
        if verdict.expected is not None:
            chosen.append(verdict)
            assert not verdict.improved
            assert verdict.exit_code in (3, 4)
            assert verdict.expected.low_percent < verdict.expected.gain_percent
            assert profile.is_unverified
            assert profile.verdict.expected == verdict.expected
            assert verdict.in_use in bed.messages
    assert chosen
    assert all(a_little(verdict.setting) > -0.01 for verdict in chosen)


def test_where_noise_hides_everything_nothing_is_believed_to_be_safe(tmp_path: Path) -> None:
    script = Script(step_noise=0.8, slow_noise=0.1)
    verdict = Bed(tmp_path, script).tune(trials=6, **SHORT_RACE).verdict
    beliefs = read_study(tmp_path).beliefs.values()
    assert beliefs
    assert all(belief.low_percent < -8 < 8 < belief.high_percent for belief in beliefs)
    assert verdict.expected is None


def test_a_setting_that_made_the_script_fail_is_not_used(tmp_path: Path) -> None:
    def crashes(setting: Setting) -> bool:
        return setting != DEFAULT and len(bed.cluster.jobs) > 1

    bed = Bed(tmp_path, Script(gain=faster_with_short_cycles, crashes_with=crashes))
    verdict = bed.tune(trials=16, limits=LimitOptions(max_crashes=99)).verdict

    assert "nothing is proved: every candidate failed (" in verdict.text
    assert "the last one because rank 1 was killed" in verdict.text
    assert (verdict.setting, verdict.expected) == (DEFAULT, None)


def test_a_verification_that_is_continued_begins_with_the_launch_that_runs(tmp_path: Path) -> None:
    bed = Bed(tmp_path, Script(gain=faster_with_short_cycles))
    bed.stops_in = "verify"
    with pytest.raises(Stopped):
        bed.tune(pairs=PairOptions(race_entrants=1))
    bed.stops_in = None
    verdict = bed.tune(pairs=PairOptions(race_entrants=1)).verdict

    assert verdict.improved
    launches = {pair.launch for pair in read_study(tmp_path).pairs}
    assert launches == set(range(1 + verdict.launches))
    assert len(bed.cluster.jobs) == len(launches)


def test_a_setting_that_changes_from_launch_to_launch_is_called_unstable(tmp_path: Path) -> None:
    kinds = []
    for seed in range(4):
        bed = Bed(tmp_path / str(seed), Script(seed=seed, launch_gain=bimodal))
        kinds.append(bed.tune(trials=5, seed=seed).verdict.kind)

    assert kinds.count("unstable") >= 3
    assert "improved" not in kinds


def test_a_crashing_setting_costs_its_trial_only(tmp_path: Path) -> None:
    def crashes(setting: Setting) -> bool:
        return not setting["cache_enabled"]

    bed = Bed(tmp_path, Script(gain=faster_with_short_cycles, crashes_with=crashes))
    verdict = bed.tune(trials=8, limits=LimitOptions(max_crashes=9)).verdict

    states = [trial.state for trial in read_study(tmp_path).trials]
    assert "failed" in states
    assert verdict.improved
    assert verdict.setting["cache_enabled"]
    assert any("Segmentation fault" in line for each in bed.said for line in each.lines)


@pytest.mark.parametrize(
    ("script", "message", "terminated"),
    [
        (Script(crashes_with=lambda setting: setting != DEFAULT), "3 times in a row", [True] * 3),
        (
            Script(refuses=lambda setting: True, steps_per_launch=3000),
            "cannot measure the default: the ranks ref",
            [False],
        ),
    ],
    ids=["crashes-without-end", "the-default-is-refused"],
)
def test_a_study_that_cannot_measure_ends(
    tmp_path: Path, script: Script, message: str, terminated: list[bool]
) -> None:
    bed = Bed(tmp_path, script)

    with pytest.raises(StudyError, match=message):
        bed.tune()
    assert [job.terminated for job in bed.cluster.jobs] == terminated


def test_a_script_that_failed_in_the_last_trial_is_started_again_with_the_verdict(
    tmp_path: Path,
) -> None:
    bed = Bed(tmp_path, Script(crashes_with=lambda setting: setting != DEFAULT))
    result = bed.tune(trials=2)

    assert result.verdict.setting == DEFAULT
    assert (len(bed.cluster.jobs), result.job) == (2, bed.job)
    assert "the script failed in the latest launch and is started again" in bed.messages


def test_a_default_that_crashes_now_and_then_ends_with_the_code_of_the_script(
    tmp_path: Path,
) -> None:
    crashes = iter(range(10**6))
    bed = Bed(tmp_path, Script(crashes_with=lambda setting: next(crashes) % 6 == 5))

    with pytest.raises(ScriptFailed, match="cannot measure the default") as raised:
        bed.tune()
    assert raised.value.exit_code == 139


def test_a_script_that_ends_early_is_started_again(tmp_path: Path) -> None:
    bed = Bed(tmp_path, Script(gain=faster_with_short_cycles, steps_per_launch=250))
    verdict = bed.tune().verdict

    assert verdict.improved
    assert len(bed.cluster.jobs) > 4
    assert "the script has ended and is started again" in bed.messages


def test_equal_settings_are_measured_once_and_end_the_search(tmp_path: Path) -> None:
    bed = Bed(tmp_path, Script())
    bed.tune(trials=30, tunable=("cache_enabled",))

    measured = [t for t in read_study(tmp_path).trials if not t.is_duplicate]
    assert len(measured) == 2
    bed.assert_search_ended_because("every proposed setting has been")


def test_settings_of_one_fusion_plan_are_measured_once(tmp_path: Path) -> None:
    bed = Bed(tmp_path, Script())
    # All it sends in a step are 4,800 bytes in two tensors.
    bed.traces = [trace(tmp_path / "rank-0.hvt", 0, steps(3, 2))]
    bed.tune(trials=2, tunable=("fusion_threshold_bytes",))

    trials = read_study(tmp_path).trials
    measured = {t.setting["fusion_threshold_bytes"] for t in trials if not t.is_duplicate}
    assert len([size for size in measured if float(size) > 4800]) == 1
    assert "the same fusion plan as trial 0" in {trial.reason for trial in trials}


@pytest.mark.parametrize(
    ("error", "ends_the_script"),
    [
        pytest.param(ZeroDivisionError, False, id="not-by-a-defect-of-the-tuner"),
        pytest.param(KeyboardInterrupt, True, id="by-an-interrupt"),
    ],
)
def test_the_script_ends_or_goes_on_with_the_default(
    tmp_path: Path, error: type[BaseException], ends_the_script: bool
) -> None:
    bed = Bed(tmp_path, Script(steps_per_launch=3000))

    def fail_in_the_search(progress: StudyProgress) -> None:
        if progress.phase == "search" and progress.trial == 2:
            raise error

    study = Study(bed.cluster.start, KNOBS, DEFAULT)
    with pytest.raises(error):
        tune(study, tmp_path, TuneOptions(trials=12), fail_in_the_search, bed.cluster.clock)

    assert bed.job.terminated == ends_the_script
    report = bed.job.poll()
    assert report is not None
    assert ends_the_script or (bed.job.setting, report.returncode) == (DEFAULT, 0)


def test_nothing_is_started_when_nothing_can_be_tuned(tmp_path: Path) -> None:
    bed = Bed(tmp_path, Script())

    with pytest.raises(UsageError):
        bed.tune(tunable=("cache_capacity",))
    assert bed.cluster.jobs == []


def test_progress_tells_phases_in_order_and_counts_down(tmp_path: Path) -> None:
    bed = Bed(tmp_path, Script(gain=faster_with_short_cycles))
    bed.tune()

    phases = list(dict.fromkeys(progress.phase for progress in bed.said))
    assert phases == ["start", "calibrate", "search", "race", "verify", "done"]
    left = [progress.seconds_left for progress in bed.said]
    assert left == sorted(left, reverse=True)
    measured = [progress for progress in bed.said if progress.plus_minus_percent is not None]
    assert all(progress.steps_per_s for progress in measured)
    assert bed.said[-1].trial == bed.said[-1].trials == 12


def test_progress_counts_what_is_known_and_shows_the_trial_that_ended(tmp_path: Path) -> None:
    bed = Bed(tmp_path, Script(gain=faster_with_short_cycles))
    bed.tune(trials=3)
    again = Bed(tmp_path, Script(gain=faster_with_short_cycles))
    again.tune(trials=6)

    assert next(p.trial for p in again.said if p.phase == "search") == 3
    ended = [now for last, now in pairwise(bed.said) if now.trial > last.trial]
    assert [progress.trial for progress in ended] == [1, 2, 3]
    assert ended[0].setting is None
    assert ended[1].best_gain_percent == pytest.approx(ended[1].gain_percent)
    for progress, trial in list(zip(ended, read_study(tmp_path).trials, strict=False))[1:]:
        assert trial.stderr_percent is not None
        assert progress.gain_percent == pytest.approx(trial.gain_percent)
        assert progress.plus_minus_percent == pytest.approx(2 * trial.stderr_percent)


def test_following_a_job_waits_for_its_end(tmp_path: Path) -> None:
    cluster = SimulatedCluster(Script(steps_per_launch=50))
    job = cluster.start()

    assert follow(job).returncode == 0
    assert not isinstance(job.next_event(0.1), Closed)


def test_one_run_is_tuned_without_ending_it(tmp_path: Path) -> None:
    bed = Bed(tmp_path, Script(gain=faster_with_short_cycles))
    result = bed.tune_one_run(8)

    assert (result.verdict.improved, result.verdict.launches) == (True, 1)
    assert result.job is bed.job
    assert len(bed.cluster.jobs) == 1
    assert not bed.job.terminated
    assert bed.job.proposed[-1] == result.verdict.setting


@pytest.mark.parametrize(
    ("script", "text"),
    [
        (Script(gain=faster_with_short_cycles, steps_per_launch=400), "%, not verified"),
        (
            Script(crashes_with=lambda setting: setting != DEFAULT),
            "ended after 2 trials",
        ),
    ],
    ids=["it-ends", "it-crashes"],
)
def test_what_one_run_has_found_by_its_end_is_what_there_is(
    tmp_path: Path, script: Script, text: str
) -> None:
    bed = Bed(tmp_path, script)
    result = bed.tune_one_run(100)

    assert result.job is None
    assert result.verdict.in_use.startswith("to use: ")
    assert (result.verdict.setting == DEFAULT) == (result.verdict.expected is None)
    assert len(bed.cluster.jobs) == 1
    assert "the script ended after" in result.verdict.text
    assert text in result.verdict.text
    assert read_profile(tmp_path / "profile.yaml", KNOBS).setting == result.verdict.setting
    assert "is started again" not in bed.messages


def test_one_run_that_ends_before_anything_was_measured_is_an_error(tmp_path: Path) -> None:
    bed = Bed(tmp_path, Script(steps_per_launch=60))
    with pytest.raises(StudyError, match="ended before the default was measured"):
        bed.tune_one_run(20)
    assert len(bed.cluster.jobs) == 1


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"trials": 3}, "all trials are measured: 3"),
        ({"time_budget_s": 100.0}, "the time for the search is up"),
        ({"step_budget": 900}, "the remaining steps cannot repay another trial"),
    ],
    ids=["trials", "time", "steps"],
)
def test_a_search_keeps_to_its_limits(tmp_path: Path, options: Any, reason: str) -> None:
    limits = {"trials": 40, "time_budget_s": 1e6, "step_budget": None, **options}
    bed = Bed(tmp_path, Script(gain=faster_with_short_cycles, step_s=0.1))
    began = bed.cluster.clock.now()
    verdict = bed.tune(**limits, **SHORT_RACE).verdict

    assert verdict.pairs >= 16  # about the usual 20, as many as fit
    assert bed.cluster.clock.now() - began < 1.1 * limits["time_budget_s"]
    assert bed.cluster.steps < 1.15 * (limits["step_budget"] or math.inf)
    bed.assert_search_ended_because(reason)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"time_budget_s": 1.0}, "the time budget was too short to measure any other setting"),
        ({"step_budget": 100}, "the step budget was too short to measure any other setting"),
    ],
)
def test_a_live_study_without_time_says_so(tmp_path: Path, options: Any, reason: str) -> None:
    verdict = Bed(tmp_path, Script()).tune(trials=40, **options).verdict

    assert verdict.text.startswith(f"nothing is proved: {reason}")


def test_the_first_settings_come_right_after_the_default(tmp_path: Path) -> None:
    bed = Bed(tmp_path, Script())
    past = {**DEFAULT, "cycle_time_ms": 7.3}
    bed.first_settings = [past, DEFAULT, {"cycle_time_ms": 80.0}]
    bed.tune(trials=3)

    settings = [trial.setting for trial in read_study(tmp_path).trials]
    assert settings[:2] == [DEFAULT, past]
    assert settings[2]["cycle_time_ms"] != 80.0


def test_several_objectives_give_a_pareto_set_and_a_recommended_point(tmp_path: Path) -> None:
    def spins(setting: Setting) -> float:
        return -0.5 if float(setting["cycle_time_ms"]) < 0.1 else 0.0

    bed = Bed(tmp_path, Script(gain=faster_with_short_cycles, cpu_gain=spins, step_noise=0.02))
    two = ("step_time", "cpu_time")
    verdict = bed.tune(trials=20, objectives=two, sampler="tpe").verdict

    report = (tmp_path / "report.md").read_text()
    assert "| trial | step_time | cpu_time | setting |" in report
    assert report.count("(recommended)") == 1
    assert verdict.candidate is not None
    assert float(verdict.candidate["cycle_time_ms"]) >= 0.1
    assert all(trial.further for trial in read_study(tmp_path).trials if trial.pairs)


@pytest.mark.parametrize(("gain", "is_verified"), [(0.08, True), (-0.08, False)])
def test_what_is_called_recommended_is_what_is_verified(
    tmp_path: Path, gain: float, is_verified: bool
) -> None:
    def costs(setting: Setting) -> float:
        return 0.0 if setting == DEFAULT else -0.2

    def gains(setting: Setting) -> float:
        return 0.0 if setting == DEFAULT else gain

    bed = Bed(tmp_path, Script(gain=gains, cpu_gain=costs, step_noise=0.02))
    two = ("step_time", "cpu_time")
    verdict = bed.tune(trials=8, objectives=two, sampler="tpe").verdict

    report = (tmp_path / "report.md").read_text()
    (row,) = [line for line in report.splitlines() if "(recommended)" in line]
    assert row.startswith("| 0 ") != is_verified
    assert (verdict.candidate is not None) == is_verified
    assert ("nothing was verified" in report) != is_verified
    if verdict.candidate is not None:
        assert row.endswith(f"| {describe(verdict.candidate, DEFAULT)} |")
    else:
        assert "none better in step_time" in verdict.text


def test_cpu_time_alone_can_be_the_objective(tmp_path: Path) -> None:
    def saves(setting: Setting) -> float:
        return 0.2 if float(setting["cycle_time_ms"]) > 2.0 else 0.0

    bed = Bed(tmp_path, Script(cpu_gain=saves))
    verdict = bed.tune(trials=16, objectives=("cpu_time",)).verdict

    assert verdict.improved
    assert float(verdict.setting["cycle_time_ms"]) > 2.0
