"""A tuner in a process of its own: RUN directory, the simulated step at which it is killed (0: it
lives), and the URL and the name of a study that it shares with others, if any."""

import sys
from pathlib import Path

from hvdtune.core.config.knobs import Setting
from hvdtune.tuner.controller import tune
from hvdtune.tuner.space.tune_options import TuneOptions
from hvdtune.tuner.storage.shared_study import SharedStudy
from hvdtune.tuner.study import Study
from tests.kit.simulated_job import DEFAULT, KNOBS, Script, SimulatedCluster

OPTIONS = TuneOptions(trials=8, time_budget_s=300.0, seed=5)


def gain(setting: Setting) -> float:
    return 0.08 if setting["cycle_time_ms"] < 1.0 else 0.0


def main() -> None:
    run_dir, kill_at = Path(sys.argv[1]), int(sys.argv[2])
    cluster = SimulatedCluster(Script(seed=kill_at, gain=gain, kill_tuner_at_step=kill_at or None))
    share = SharedStudy(sys.argv[3], sys.argv[4]) if len(sys.argv) > 3 else None
    study = Study(cluster.start, KNOBS, DEFAULT, share=share)
    result = tune(study, run_dir, OPTIONS, clock=cluster.clock)
    print(result.verdict.kind)


if __name__ == "__main__":
    main()
