"""Compares tuners on recorded grids, in virtual time and over many seeds.

    python -m studies.tuning.offline                             # all that is recorded, 100 seeds
    python -m studies.tuning.offline synthetic-peak --seeds 10 --tuners hvdtune
    python -m studies.tuning.offline --noise                     # what was recorded, no tuning
    python -m studies.tuning.offline transformer@fusion_threshold_bytes=65536   # a worse start

Regret is how much slower the shipped setting truly is than the best of the grid. Steps are those
until a setting within 1 % of the best is in force for good: with seeds where that never comes
counted as infinite. "In use within 10 %" are those until the setting in use, which trials are
compared with until there is a verdict, is within 10 % of the best for good. Cost is how much longer
a run of 5,000 steps takes than under the default, the tuned part at its end included. Time lost, in
the last columns, is how much longer trainings of 2,000, 10,000 and 50,000 steps take than one that
knows the best setting and begins with it. Harm counts seeds whose shipped setting is truly slower
than the default by over 1 %. A tuner with a verdict has
a second line: what the same studies would have shipped if the default stayed unless another setting
was proved to be faster.
"""

from __future__ import annotations

import argparse
import collections
import csv
import functools
import json
import math
import os
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from hvdtune.core.config.knobs import parse_assignments
from studies.tuning.recordings import synthetic
from studies.tuning.recordings.grid import Grid, load, rebased
from studies.tuning.recordings.record import DATA
from studies.tuning.recordings.replay import LENGTHS
from studies.tuning.recordings.scenarios import SCENARIOS
from studies.tuning.tuners import TUNERS, Outcome

_NEAR = math.log(1.01)
_IN_USE_NEAR = math.log(1.1)
_COST_STEPS = 5_000
_LOST_STEPS = tuple(steps for steps in LENGTHS if steps != _COST_STEPS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("scenarios", nargs="*", help="recorded, or synthetic-...")
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--tuners", nargs="+", choices=TUNERS, default=list(TUNERS))
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--folder", type=Path, default=DATA)
    parser.add_argument("--csv", type=Path, help="write one row per seed here")
    parser.add_argument("--noise", action="store_true", help="only say what was recorded")
    arguments = parser.parse_args()
    names = arguments.scenarios or [
        name for name in SCENARIOS if (arguments.folder / f"{name}.csv").exists()
    ]
    results: list[dict[str, Any]] = []
    for name in names:
        grid = grid_of(name, arguments.folder)
        print(f"\n{describe(grid)}")
        if arguments.noise:
            continue
        print(HEAD)
        for tuner in arguments.tuners:
            began = time.monotonic()
            rows = list(run(name, arguments.folder, tuner, arguments.seeds, arguments.jobs))
            results += rows
            print(summary(tuner, rows), flush=True)
            if any(row["kind"] for row in rows):
                print(summary(f"{tuner}, proved only", [proved_only(row) for row in rows]))
            print(f"{tuner}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    if arguments.csv and results:
        with arguments.csv.open("w", newline="") as file:
            table = csv.DictWriter(file, list(results[0]), lineterminator="\n")
            table.writeheader()
            table.writerows(results)


@functools.cache
def grid_of(name: str, folder: Path) -> Grid:
    """A recorded or a synthetic grid; after an @ what is different in its default."""
    name, _, different = name.partition("@")
    grid = synthetic.make(name) if name in synthetic.SHAPES else load(name, folder)
    return rebased(grid, parse_assignments(different.split(","))) if different else grid


def run(name: str, folder: Path, tuner: str, seeds: int, jobs: int) -> Iterator[dict[str, Any]]:
    """One row per seed."""
    study = functools.partial(one, name, folder, tuner)
    if jobs == 1:
        yield from map(study, range(seeds))
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(study, range(seeds), chunksize=4)


def one(name: str, folder: Path, tuner: str, seed: int) -> dict[str, Any]:
    """The result of one seed."""
    grid = grid_of(name, folder)
    found = TUNERS[tuner](grid, seed)
    gain = grid.gain(found.setting)
    near = grid.best - gain <= _NEAR
    return {
        "scenario": name,
        "tuner": tuner,
        "seed": seed,
        "regret_percent": round(100 * math.expm1(grid.best - gain), 3),
        "gain_percent": round(100 * math.expm1(gain), 3),
        "steps": found.steps,
        "steps_until_near": found.steps if near else math.inf,
        "steps_until_used": _until_used(grid, found),
        "launches": found.launches,
        "trials": found.trials,
        "cost_percent": round(100 * found.lost[_COST_STEPS], 3),
        **{
            f"lost_percent_{steps}": round(100 * _against_oracle(grid, found, steps), 3)
            for steps in _LOST_STEPS
        },
        "harmed": int(gain < -_NEAR),
        "kind": found.kind,
        "phases": json.dumps(found.phases),
        "setting": json.dumps({axis: found.setting[axis] for axis in grid.axes}),
    }


def _against_oracle(grid: Grid, found: Outcome, steps: int) -> float:
    return (1 + found.lost[steps]) * math.exp(grid.best) - 1


def _until_used(grid: Grid, found: Outcome) -> float:
    until = math.inf
    for steps, setting in reversed([*found.used, (found.steps, found.setting)]):
        if grid.best - grid.gain(setting) > _IN_USE_NEAR:
            break
        until = steps
    return until


def proved_only(row: dict[str, Any]) -> dict[str, Any]:
    """The row of a study that would have shipped the default without proof."""
    if row["kind"] == "improved":
        return row
    best = math.log1p(row["regret_percent"] / 100) + math.log1p(row["gain_percent"] / 100)
    return {
        **row,
        "regret_percent": round(100 * math.expm1(best), 3),
        "gain_percent": 0.0,
        "steps_until_near": row["steps"] if best <= _NEAR else math.inf,
        "steps_until_used": row["steps"] if best <= _IN_USE_NEAR else math.inf,
        "cost_percent": math.nan,
        **{f"lost_percent_{steps}": math.nan for steps in _LOST_STEPS},
        "harmed": 0,
    }


HEAD = (
    "| tuner | regret % median | p90 | within 1 % | steps to there, median | p90 | "
    "in use within 10 %, median | p90 | steps in all | cost % median | p90 | harm | verdicts"
    + "".join(f" | lost % of {steps:,} steps, median | p90" for steps in _LOST_STEPS)
    + f" |\n|{'---|' * (13 + 2 * len(_LOST_STEPS))}"
)


def summary(tuner: str, rows: Sequence[dict[str, Any]]) -> str:
    """A line of the table."""
    regret = [row["regret_percent"] for row in rows]
    until = [row["steps_until_near"] for row in rows]
    used = [row["steps_until_used"] for row in rows]
    near = sum(math.isfinite(steps) for steps in until)
    kinds = collections.Counter(row["kind"] for row in rows if row["kind"])
    cells = [
        tuner,
        f"{_quantile(regret, 0.5):.2f}",
        f"{_quantile(regret, 0.9):.2f}",
        f"{near} of {len(rows)}",
        _steps(_quantile(until, 0.5)),
        _steps(_quantile(until, 0.9)),
        _steps(_quantile(used, 0.5)),
        _steps(_quantile(used, 0.9)),
        _steps(_quantile([row["steps"] for row in rows], 0.5)),
        *_costs(rows, "cost_percent"),
        f"{sum(row['harmed'] for row in rows)}",
        ", ".join(f"{count} {kind}" for kind, count in kinds.most_common()) or "-",
        *(cell for steps in _LOST_STEPS for cell in _costs(rows, f"lost_percent_{steps}")),
    ]
    return f"| {' | '.join(cells)} |"


def describe(grid: Grid) -> str:
    """The grid's best and its noise."""
    noise = grid.noise
    best = {axis: grid.best_setting[axis] for axis in grid.axes}
    near = float((grid.best - grid.gains <= _NEAR).mean())
    lags = ", ".join(f"{value:.2f}" for value in noise.autocorrelation)
    return (
        f"**{grid.name}**: {grid.title}. Default {1e3 * grid.step_s:.2f} ms per step; best "
        f"{100 * math.expm1(grid.best):+.1f} % with {best}; {100 * near:.0f} % of the grid within "
        f"1 % of it; worst {100 * math.expm1(float(grid.gains.min())):+.0f} %. {grid.pairs} pairs: "
        f"sd {100 * noise.pair_sd:.2f} % per pair, {100 * noise.launch_sd:.2f} % between launches; "
        f"autocorrelation of steps at lags 1 to {len(noise.autocorrelation)}: {lags}."
    )


def _quantile(values: Sequence[float], share: float) -> float:
    # Of the sorted values themselves: interpolating towards infinity would make no number.
    ranked = np.sort(np.asarray(values, dtype=float))
    return float(ranked[min(len(ranked) - 1, math.ceil(share * len(ranked)) - 1)])


def _costs(rows: Sequence[dict[str, Any]], column: str) -> tuple[str, str]:
    values = [row[column] for row in rows]
    if any(map(math.isnan, values)):
        return "", ""
    return f"{_quantile(values, 0.5):+.1f}", f"{_quantile(values, 0.9):+.1f}"


def _steps(value: float) -> str:
    return f"{value:,.0f}" if math.isfinite(value) else "never"


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
