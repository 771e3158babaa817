"""What is believed of settings where some are many times faster than others."""

import math
from dataclasses import replace
from pathlib import Path

from hvdtune.core.config.knobs import Setting
from hvdtune.tuner.controller import tune
from hvdtune.tuner.space.tune_options import ONE_RUN, TuneOptions
from hvdtune.tuner.storage.study_store import StudyView, read_study
from hvdtune.tuner.study import Study
from tests.kit.simulated_job import DEFAULT, KNOBS, Script, SimulatedCluster

# Readings scatter, and the process draws them together; the wrong belief was off by a factor of 8.
NEAR = math.log(1.1)


def many_times(setting: Setting) -> float:
    """The default's long cycle costs as much as nine tenths of a step."""
    return 0.0 if float(setting["cycle_time_ms"]) > 10.0 else math.log(8.0)


def read_after(run_dir: Path, script: Script, options: TuneOptions) -> StudyView:
    cluster = SimulatedCluster(script)
    start = {**DEFAULT, "cycle_time_ms": 20.0}
    tune(Study(cluster.start, KNOBS, start), run_dir, options, clock=cluster.clock)
    return read_study(run_dir)


def test_what_is_as_slow_as_a_far_too_slow_default_is_believed_to_be(tmp_path: Path) -> None:
    found = read_after(tmp_path, Script(seed=3, gain=many_times), TuneOptions(trials=14))
    believed = [trial for trial in found.trials if trial.number in found.beliefs]
    slow = [trial for trial in believed if many_times(trial.setting) == 0.0]
    assert slow and len(slow) < len(believed)
    for trial in believed:
        belief = found.beliefs[trial.number]
        mean = math.log1p(belief.gain_percent / 100)
        assert abs(mean - many_times(trial.setting)) < NEAR, (trial.setting, belief)


def test_the_spread_of_a_default_that_waits_is_not_taken_for_that_of_others(tmp_path: Path) -> None:
    held = trials = 0
    for seed in range(8):
        script = Script(
            seed=seed,
            gain=many_times,
            step_s=0.3,
            step_noise=0.01,
            slow_noise=0.005,
            own_noise=lambda setting: 0.3 if many_times(setting) else 0.0,
        )
        options = replace(ONE_RUN, trials=12, time_budget_s=180.0)
        found = read_after(tmp_path / str(seed), script, options)
        for trial in found.trials:
            if trial.number in found.beliefs:
                belief = found.beliefs[trial.number]
                truth = 100 * math.expm1(many_times(trial.setting))
                trials += 1
                held += belief.low_percent <= truth <= belief.high_percent
    assert trials > 40
    assert held > 0.75 * trials, (held, trials)  # by the spread of the default: 35 of 54
