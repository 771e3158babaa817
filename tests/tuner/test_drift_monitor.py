"""After the verdict, in virtual time."""

import dataclasses
import json
from pathlib import Path

import pytest

from hvdtune.core.config.knobs import Setting
from hvdtune.tuner.controller import AfterVerdict, tune
from hvdtune.tuner.drift_monitor import DRIFT_FILE, watch
from hvdtune.tuner.measure.progress import StudyProgress
from hvdtune.tuner.space.tune_options import TuneOptions
from hvdtune.tuner.stats.posterior import Belief, Posterior
from hvdtune.tuner.storage.study_reader import read_study
from hvdtune.tuner.study import Study
from tests.kit.simulated_job import DEFAULT, KNOBS, Script, SimulatedCluster


def short_cycles_win(setting: Setting) -> float:
    return 0.1 if float(setting["cycle_time_ms"]) < 0.9 else 0.0


def short_cycles_lose(setting: Setting) -> float:
    return -short_cycles_win(setting)


def no_gain(setting: Setting) -> float:
    del setting
    return 0.0


class Training:
    """A study, then a training that becomes another, and what was adopted and said meanwhile."""

    def __init__(self, run_dir: Path, before: Script) -> None:
        self.run_dir = run_dir
        self.cluster = SimulatedCluster(before)
        self.adopted: list[Setting] = []
        self.said: list[StudyProgress] = []

    def go(self, then: Script | None) -> None:
        def after(training: AfterVerdict) -> None:
            self.verdict = training.verdict
            self.said.clear()
            job = self.cluster.jobs[-1]
            end = job._steps + 120_000
            self.cluster.script.steps_per_launch = end
            self.watch(training, then, end)

        study = Study(self.cluster.start, KNOBS, DEFAULT)
        options = TuneOptions(trials=10, seed=3, time_budget_s=2000.0)
        tune(study, self.run_dir, options, self.said.append, self.cluster.clock, after)

    def watch(self, training: AfterVerdict, then: Script | None, end: int) -> None:
        job = self.cluster.jobs[-1]
        take = job.next_event
        changes_at = job._steps + 12_000

        def next_event(timeout_s: float):
            if then is not None and job._steps == changes_at:
                then.steps_per_launch = end
                job.change(then)
            return take(timeout_s)

        job.next_event = next_event  # type: ignore[method-assign]
        watch(training, self.adopted.append)

    @property
    def messages(self) -> list[str]:
        return [progress.message for progress in self.said if progress.message]

    @property
    def lines(self) -> list[dict]:
        path = self.run_dir / DRIFT_FILE
        return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_training_that_stays_as_it_is_is_left_alone(tmp_path: Path) -> None:
    training = Training(tmp_path, Script(gain=short_cycles_win))
    training.go(then=None)
    assert training.verdict.improved
    assert training.messages == [] and training.adopted == []
    assert not (tmp_path / DRIFT_FILE).exists()


def test_a_setting_that_is_still_better_after_a_change_stays(tmp_path: Path) -> None:
    training = Training(tmp_path, Script(gain=short_cycles_win))
    training.go(then=Script(gain=short_cycles_win, step_s=0.02))
    assert training.adopted == []
    assert "steps take" in training.messages[0]
    (line,) = training.lines
    assert line["setting"] == training.verdict.setting
    assert "still beats the default" in line["text"]
    assert line["factor"] == pytest.approx(2.0, rel=0.15)


def test_a_setting_that_is_no_longer_better_is_given_up(tmp_path: Path) -> None:
    training = Training(tmp_path, Script(gain=short_cycles_win))
    training.go(then=Script(gain=short_cycles_lose, step_s=0.02))
    assert training.adopted[0] == DEFAULT
    assert "is unlikely to be better" in training.lines[0]["text"]
    assert "back to the default" in training.lines[0]["text"]


def test_a_setting_that_is_only_most_likely_better_after_the_change_stays(tmp_path: Path) -> None:
    def a_little(setting: Setting) -> float:
        return 0.2 * short_cycles_win(setting)

    training = Training(tmp_path, Script(gain=short_cycles_win))
    training.go(then=Script(gain=a_little, step_s=0.02, step_noise=0.06))
    assert training.adopted == []
    assert "stays in use, not yet proved (+" in training.lines[0]["text"]


def test_a_better_setting_after_the_change_is_found(tmp_path: Path) -> None:
    training = Training(tmp_path, Script(gain=no_gain))
    training.go(then=Script(gain=short_cycles_win, step_s=0.02))
    assert not training.verdict.improved
    assert float(training.adopted[-1]["cycle_time_ms"]) < 0.9
    assert "is used (+" in training.lines[0]["text"]


@pytest.mark.parametrize(
    ("gain", "said", "adopted"),
    [
        (short_cycles_win, "proved in this launch: +", []),
        (short_cycles_lose, "back to the default", [DEFAULT]),
    ],
)
def test_a_setting_in_use_without_proof_is_proved_or_given_up_while_training_goes_on(
    tmp_path: Path, gain, said: str, adopted: list[Setting]
) -> None:
    training = Training(tmp_path, Script(gain=gain))

    def watch_unproved(after: AfterVerdict, script: Script | None, end: int) -> None:
        setting = {**DEFAULT, "cycle_time_ms": 0.2}
        verdict = dataclasses.replace(
            after.verdict, kind="noisy", setting=setting, expected=Belief(1.8, -0.3, 3.9)
        )
        prior = Posterior(0.018, 0.011)
        after.job.propose(setting)
        Training.watch(
            training, dataclasses.replace(after, verdict=verdict, prior=prior), script, end
        )

    training.watch = watch_unproved  # type: ignore[method-assign]
    training.go(then=None)
    (line,) = training.lines
    assert said in line["text"]
    assert training.adopted == adopted
    probes = [pair for pair in read_study(tmp_path).pairs if pair.phase == "probe"]
    assert sum(pair.steps for pair in probes) < 0.03 * 120_000


def test_the_end_of_the_script_in_the_middle_of_it_is_no_error(tmp_path: Path) -> None:
    training = Training(tmp_path, Script(gain=short_cycles_win))
    then = Script(gain=short_cycles_win, step_s=0.02)
    job_end = 12_000 + 9_000

    def watch_to_an_early_end(after: AfterVerdict, script: Script | None, end: int) -> None:
        del script, end
        Training.watch(training, after, then, training.cluster.jobs[-1]._steps + job_end)

    training.watch = watch_to_an_early_end  # type: ignore[method-assign]
    training.go(then=then)
    assert training.adopted == [] and not (tmp_path / DRIFT_FILE).exists()
