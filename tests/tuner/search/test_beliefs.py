"""What is believed of settings where some are many times faster than others."""

import math
from pathlib import Path

from hvdtune.core.config.knobs import Setting
from hvdtune.tuner.controller import tune
from hvdtune.tuner.space.tune_options import TuneOptions
from hvdtune.tuner.storage.study_store import StudyView, read_study
from hvdtune.tuner.study import Study
from tests.kit.simulated_job import DEFAULT, KNOBS, Script, SimulatedCluster

# Readings scatter, and the process draws them together; the wrong belief was off by a factor of 8.
NEAR = math.log(1.1)


def many_times(setting: Setting) -> float:
    """The default's long cycle costs as much as nine tenths of a step."""
    return 0.0 if float(setting["cycle_time_ms"]) > 10.0 else math.log(8.0)


def read_after(run_dir: Path, options: TuneOptions) -> StudyView:
    cluster = SimulatedCluster(Script(seed=3, gain=many_times))
    start = {**DEFAULT, "cycle_time_ms": 20.0}
    tune(Study(cluster.start, KNOBS, start), run_dir, options, clock=cluster.clock)
    return read_study(run_dir)


def test_what_is_as_slow_as_a_far_too_slow_default_is_believed_to_be(tmp_path: Path) -> None:
    found = read_after(tmp_path, TuneOptions(trials=14))
    believed = [trial for trial in found.trials if trial.number in found.beliefs]
    slow = [trial for trial in believed if many_times(trial.setting) == 0.0]
    assert slow and len(slow) < len(believed)
    for trial in believed:
        belief = found.beliefs[trial.number]
        mean = math.log1p(belief.gain_percent / 100)
        assert abs(mean - many_times(trial.setting)) < NEAR, (trial.setting, belief)
