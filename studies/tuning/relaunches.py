"""What launching a job again and again makes of it, on recorded grids.

    python -m studies.tuning.relaunches                     # all that is recorded, 10 jobs each
    python -m studies.tuning.relaunches --equal             # where no setting gains anything

The first run of a job is a whole study. Each later one begins with what those before it have left
in their folders, on the same machine and with likings of its own. A line is about the runs of that
number: how many began without a search, after how many steps the setting was chosen, its true gain
and harm (over 1 % slower than the default), claims of a setting that truly gains nothing, and how
often the interval over launches held the true mean. The seeds begin at 3,000.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import tempfile
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from hvdtune.core.config.knobs import Setting, load_knobs
from hvdtune.tuner.controller import tune
from hvdtune.tuner.results.earlier_studies import past_of
from hvdtune.tuner.results.fingerprint import Fingerprint
from hvdtune.tuner.space.tune_options import TuneOptions
from hvdtune.tuner.stats.estimates import from_percent
from hvdtune.tuner.study import Study
from studies.tuning.offline import grid_of
from studies.tuning.recordings.grid import Grid
from studies.tuning.recordings.record import DATA
from studies.tuning.recordings.replay import Cluster
from studies.tuning.recordings.scenarios import SCENARIOS
from studies.tuning.tuners import TRIALS

FIRST_SEED: Final = 3000


@dataclass(frozen=True)
class Relaunch:
    """One run of a job; gains are true means over launches, as log ratios.

    `holds`: its interval over launches has the true mean of the setting; None: it has none.
    """

    scenario: str
    run: int
    is_known: bool
    steps: int
    gain: float
    is_claimed: bool
    holds: bool | None


class EqualCluster(Cluster):
    """The same machine, where settings differ by no more than launches like them."""

    def gain(self, setting: Setting) -> float:
        """The setting's gain in this launch."""
        return super().gain(setting) - self.grid.gain(setting)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("scenarios", nargs="*")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--runs", type=int, default=6)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--equal", action="store_true", help="no setting gains anything")
    arguments = parser.parse_args()
    names = arguments.scenarios or [name for name in SCENARIOS if (DATA / f"{name}.csv").exists()]
    seeds = range(FIRST_SEED, FIRST_SEED + arguments.seeds)
    jobs = list(itertools.product(names, seeds))
    rest = ([arguments.runs] * len(jobs), [arguments.equal] * len(jobs))
    with ProcessPoolExecutor(arguments.jobs) as pool:
        chains = list(pool.map(relaunch, *zip(*jobs, strict=True), *rest))
    print(HEAD)
    for name, run in itertools.product(names, range(arguments.runs)):
        of_run = [chain[run] for chain in chains if chain[run].scenario == name]
        print(_line(name, run, of_run))


HEAD: Final = (
    "| scenario | run | without a search | steps median | true gain % median | harm | claimed, "
    "false | interval holds |\n|---|---|---|---|---|---|---|---|"
)


def _line(name: str, run: int, found: list[Relaunch]) -> str:
    gains = [100 * math.expm1(each.gain) for each in found]
    claimed = [each for each in found if each.is_claimed]
    intervals = [each.holds for each in found if each.holds is not None]
    cells = [
        name,
        str(run),
        f"{sum(each.is_known for each in found)} of {len(found)}",
        f"{np.median([each.steps for each in found]):.0f}",
        f"{np.median(gains):.2f}",
        str(sum(gain < -1 for gain in gains)),
        f"{len(claimed)}, {sum(each.gain <= 0 for each in claimed)}",
        f"{sum(intervals)} of {len(intervals)}",
    ]
    return f"| {' | '.join(cells)} |"


def relaunch(name: str, seed: int, runs: int, is_equal: bool) -> list[Relaunch]:
    """All runs of one job, in virtual time."""
    grid = grid_of(name, DATA)
    cluster = EqualCluster(grid, seed) if is_equal else Cluster(grid, seed)
    with tempfile.TemporaryDirectory() as folder:
        return [
            _run(name, grid, cluster, Path(folder), run, seed + 100 * run) for run in range(runs)
        ]


def _run(name: str, grid: Grid, cluster: Cluster, folder: Path, run: int, seed: int) -> Relaunch:
    identity = {"command": [name], "study": {"default": dict(grid.default)}, "variables": {}}
    own = folder / f"run-{run}"
    own.mkdir()
    (own / "run.json").write_text(json.dumps(identity))
    known = past_of(identity, Fingerprint(), [folder], own).known
    study = Study(cluster.start, load_knobs(), grid.default, hosts=grid.hosts, known=known)
    begun = cluster.steps
    options = TuneOptions(trials=TRIALS, seed=seed)
    verdict = tune(study, own, options, clock=cluster.clock).verdict

    def truth(setting: Setting) -> float:
        return 0.0 if isinstance(cluster, EqualCluster) else float(grid.gain(setting))

    evidence = verdict.evidence
    holds = None
    if evidence is not None and evidence.ci_percent is not None:
        low, high = map(from_percent, evidence.ci_percent)
        holds = low <= truth(dict(verdict.candidate or {})) <= high
    return Relaunch(
        scenario=name,
        run=run,
        is_known=evidence is not None,
        steps=cluster.steps - begun,
        gain=truth(dict(verdict.setting)),
        is_claimed=verdict.improved,
        holds=holds,
    )


if __name__ == "__main__":
    main()
