"""How often a verification is right: identical settings, and slowdowns that were put in.

    python -m studies.tuning.rates                         # in virtual time, on all recorded noise
    python -m studies.tuning.rates few-huge --studies 400
    python -m studies.tuning.rates --pairs 60              # one look at so many pairs
    python -m studies.tuning.rates many-small --live 30    # real jobs, the default against itself

Every verification calibrates, plans, measures fresh pairs in fresh launches and judges, with the
tuner's own code. A difference is claimed when the 95 % interval excludes zero; a gain is claimed
when the verdict is "improved".
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import functools
import math
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from hvdtune.core.config.knobs import Setting
from hvdtune.tuner.measure.calibration import calibrate
from hvdtune.tuner.measure.live_run import LiveRun
from hvdtune.tuner.measure.pair_plan import plan_verify
from hvdtune.tuner.measure.pair_runner import PairRunner
from hvdtune.tuner.measure.progress import Clock, Reporter, StudyProgress, WallClock
from hvdtune.tuner.measure.run import StartJob
from hvdtune.tuner.search.context import StudyContext
from hvdtune.tuner.search.verification import prove
from hvdtune.tuner.space.tune_options import ProofOptions, TuneOptions
from hvdtune.tuner.stats.verdict import Verdict
from hvdtune.tuner.storage.pair_log import PairLog
from studies.tuning.offline import grid_of
from studies.tuning.recordings.grid import Grid
from studies.tuning.recordings.jobs import starter
from studies.tuning.recordings.record import DATA
from studies.tuning.recordings.replay import Cluster
from studies.tuning.recordings.scenarios import SCENARIOS

_INJECTED = (("5 % slower", 5.0), ("2 % slower", 2.0))
_VERIFY_S = 100.0  # left for the verification when it is planned


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("scenarios", nargs="*")
    parser.add_argument("--studies", type=int, default=200)
    parser.add_argument("--live", type=int, default=0, metavar="N", help="N real verifications")
    parser.add_argument("--pairs", type=int, help="look once, at so many pairs")
    parser.add_argument("--folder", type=Path, default=DATA)
    arguments = parser.parse_args()
    judged = functools.partial(options_of, arguments.pairs)
    names = arguments.scenarios or [
        name for name in SCENARIOS if (arguments.folder / f"{name}.csv").exists()
    ]
    print(HEAD)
    for name in names:
        if arguments.live:
            print(live(name, arguments.live, judged).row(f"{name}, live", "identical"), flush=True)
            continue
        for label, percent, effects in CASES:
            grid = injected(grid_of(name, arguments.folder), percent, effects=effects)
            found = Rates(percent)
            for seed in range(arguments.studies):
                found.add(replayed_verdict(grid, judged(seed)))
            print(found.row(name, label), flush=True)


CASES = (
    ("identical", 0.0, False),
    ("equal but for launches", 0.0, True),
    *((label, percent, True) for label, percent in _INJECTED),
)
HEAD = (
    "| noise of | settings | verifications | claim a difference | claim a gain | interval holds "
    "the truth | half width % median | verdicts |\n|---|---|---|---|---|---|---|---|"
)


@dataclasses.dataclass
class Rates:
    """Of verifications whose candidate is truly so many percent slower."""

    slower_percent: float
    claims: int = 0
    gains: int = 0
    covered: int = 0
    kinds: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    half_widths: list[float] = dataclasses.field(default_factory=list)

    def add(self, verdict: Verdict) -> None:
        assert verdict.ci_percent is not None
        low, high = verdict.ci_percent
        truth = 100 * math.expm1(true_gain(self.slower_percent))
        self.claims += not low <= 0 <= high
        self.gains += verdict.kind == "improved"
        self.covered += low <= truth <= high
        self.kinds[verdict.kind] += 1
        self.half_widths.append((high - low) / 2)

    def row(self, name: str, label: str) -> str:
        count = len(self.half_widths)
        kinds = ", ".join(f"{n} {kind}" for kind, n in self.kinds.most_common())
        return (
            f"| {name} | {label} | {count} | {self._share(self.claims)} | "
            f"{self._share(self.gains)} | {self._share(self.covered)} | "
            f"{np.median(self.half_widths):.2f} | {kinds} |"
        )

    def _share(self, number: int) -> str:
        return f"{100 * number / len(self.half_widths):.1f} %"


def true_gain(slower_percent: float) -> float:
    """The log ratio of a setting whose steps take so many percent longer."""
    return -math.log1p(slower_percent / 100)


def injected(grid: Grid, slower_percent: float, *, effects: bool) -> Grid:
    """The same noise around one other setting that is so much slower."""
    noise = grid.noise
    if not effects:
        noise = dataclasses.replace(noise, launch_effects=np.zeros(1))
    return dataclasses.replace(
        grid,
        axes={"cycle_time_ms": (1.0, 5.0)},
        gains=np.array([0.0, true_gain(slower_percent)]),
        noise=noise,
        known={},
    )


def options_of(pairs: int | None, seed: int) -> TuneOptions:
    """The tuner's own, or those of one look at a number of pairs."""
    if pairs is None:
        return TuneOptions(seed=seed)
    return TuneOptions(
        seed=seed,
        proof=ProofOptions(min_pairs=pairs, max_pairs=pairs),
    )


def replayed_verdict(grid: Grid, options: TuneOptions) -> Verdict:
    """On one setting against the default, in virtual time."""
    cluster = Cluster(grid, options.seed)
    candidate = {**grid.default, "cycle_time_ms": 5.0}
    return one_verdict(cluster.start, cluster.clock, grid.default, candidate, options)


def live(name: str, count: int, judged: Callable[[int], TuneOptions]) -> Rates:
    """Real verifications of the default against itself."""
    found = Rates(0.0)
    with starter(name) as jobs:
        for seed in range(count):
            start = functools.partial(jobs.start, jobs.default)
            found.add(one_verdict(start, WallClock(), jobs.default, jobs.default, judged(seed)))
            print(f"{time.strftime('%H:%M:%S')} {found.row(name, 'identical')}", flush=True)
    return found


def one_verdict(
    start: StartJob, clock: Clock, default: Setting, candidate: Setting, options: TuneOptions
) -> Verdict:
    """Calibrates, plans, verifies and judges, as a study does at its end."""
    reporter = Reporter(_ignore, clock, options.trials, options.time_budget_s)
    run = LiveRun(start, default, options, clock, reporter)
    with (
        tempfile.TemporaryDirectory() as folder,
        PairLog(Path(folder) / "pairs.jsonl") as log,
    ):
        runner = PairRunner(run, log, reporter, default, seed=options.seed)
        try:
            context = StudyContext(runner, calibrate(runner, run.choose_shape(), options), options)
            noise = context.calibration.noise
            plan = plan_verify(options, noise, context.cost, _VERIFY_S, 0.0)
            return prove(context, candidate, plan)
        finally:
            run.stop()


def _ignore(progress: StudyProgress) -> None:
    del progress


if __name__ == "__main__":
    main()
