"""A tuner in a process of its own: RUN directory, and the simulated step at which it is killed."""

import sys
from pathlib import Path

from simulated_job import DEFAULT, KNOBS, Script, SimulatedCluster

from hvdtune.core.knobs import Setting
from hvdtune.tuner.controller import Study, tune
from hvdtune.tuner.options import TuneOptions

OPTIONS = TuneOptions(trials=8, time_budget_s=300.0, seed=5)


def gain(setting: Setting) -> float:
    return 0.08 if setting["cycle_time_ms"] < 1.0 else 0.0


def main() -> None:
    run_dir, kill_at = Path(sys.argv[1]), int(sys.argv[2])
    cluster = SimulatedCluster(Script(seed=kill_at, gain=gain, kill_tuner_at_step=kill_at or None))
    result = tune(Study(cluster.start, KNOBS, DEFAULT), run_dir, OPTIONS, clock=cluster.clock)
    print(result.verdict.kind)


if __name__ == "__main__":
    main()
