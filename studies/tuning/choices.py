"""Which rule is to choose the setting in use, tried on studies kept for that.

    python -m studies.tuning.choices                   # all that is recorded, 20 studies each
    python -m studies.tuning.choices --jsonl FILE      # goes on with the studies that FILE holds

A study ends with what it believes of each setting. How good a rule is that chooses one of them is
told by the grid's truth: regret as in `offline.py`, harm where the chosen setting is truly slower
than the default by over 1 %. How good the beliefs are is told by how often their ranges over
launches hold the truth. The seeds begin at 1,000, so that the table of `offline.py`, whose
seeds begin at 0, says nothing that these studies have decided.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import math
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from hvdtune.core.config.knobs import load_knobs
from hvdtune.tuner.controller import tune
from hvdtune.tuner.space.tune_options import TuneOptions
from hvdtune.tuner.stats.choice import choose
from hvdtune.tuner.stats.estimates import from_percent, to_percent
from hvdtune.tuner.stats.posterior import Belief, Posterior, posterior_from
from hvdtune.tuner.storage.study_reader import read_study
from hvdtune.tuner.study import Study
from studies.tuning.offline import grid_of
from studies.tuning.recordings.record import DATA
from studies.tuning.recordings.replay import Cluster
from studies.tuning.recordings.scenarios import SCENARIOS
from studies.tuning.tuners import TRIALS

FIRST_SEED: Final = 1000
CHANCES: Final = (0.01, 0.05, 0.2)


@dataclass(frozen=True)
class Believed:
    """What a finished study believes of one setting, log ratios, and the truth of it."""

    mean: float
    low: float
    high: float
    truth: float
    verified: bool

    @property
    def holds(self) -> bool:
        """Whether the truth lies in the range."""
        return self.low <= self.truth <= self.high

    @property
    def posterior(self) -> Posterior:
        """The posterior of which the range was made."""
        return posterior_from(Belief(*map(to_percent, (self.mean, self.low, self.high))))


@dataclass(frozen=True)
class Finished:
    """A finished study of a recorded grid; `best` is the truth of the grid's best setting, `in_use`
    that of the one that the study chose."""

    scenario: str
    seed: int
    kind: str
    best: float
    in_use: float
    believed: tuple[Believed, ...]

    @property
    def foremost(self) -> Believed | None:
        """The setting that was verified, else the one that most is expected of; None: of none."""
        verified = [each for each in self.believed if each.verified]
        return max(verified or self.believed, key=lambda each: each.mean, default=None)

    def chosen(self, harm_chance: float, *, among_all: bool) -> float:
        """The true gain of what is in use after it."""
        candidates = [each for each in self.believed if each.verified]
        if self.kind == "improved":
            return candidates[0].truth
        if self.kind in ("default", "unstable") and candidates:
            return 0.0
        among = self.believed if among_all or not candidates else candidates
        found = choose({each: each.posterior for each in among}, harm_chance)
        return 0.0 if found is None else found.truth


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("scenarios", nargs="*")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--folder", type=Path, default=DATA)
    parser.add_argument("--jsonl", type=Path, help="keep the studies here")
    arguments = parser.parse_args()
    names = arguments.scenarios or [
        name for name in SCENARIOS if (arguments.folder / f"{name}.csv").exists()
    ]
    wanted = list(itertools.product(names, range(FIRST_SEED, FIRST_SEED + arguments.seeds)))
    kept = _read(arguments.jsonl)
    missing = [each for each in wanted if each not in kept]
    for study in _finish(missing, arguments.folder, arguments.jobs):
        kept[study.scenario, study.seed] = study
        if arguments.jsonl:
            with arguments.jsonl.open("ab") as file:
                file.write(msgspec.json.encode(study) + b"\n")
    print(HEAD)
    for name in names:
        studies = [kept[each] for each in wanted if each[0] == name]
        print(_line(name, "as the tuner does", studies, [study.in_use for study in studies]))
        print(_line(name, "only what is proved", studies, _gains(studies, 0.0, among_all=False)))
        for chance, among_all in itertools.product(CHANCES, (False, True)):
            among = "of all" if among_all else "verified or default, else of all"
            rule = f"{among}; slower with {100 * chance:g} % at most"
            print(_line(name, rule, studies, _gains(studies, chance, among_all=among_all)))
    print(f"\n{COVERAGE_HEAD}")
    for name in names:
        print(_coverage(name, [kept[each] for each in wanted if each[0] == name]))


HEAD: Final = "| scenario | rule | regret % median | p90 | mean | harm |\n|---|---|---|---|---|---|"

COVERAGE_HEAD: Final = (
    "| scenario | range holds the truth: verified setting | best believed, none verified | all | "
    "half width % median, verified |\n|---|---|---|---|---|"
)


def _gains(studies: Sequence[Finished], chance: float, *, among_all: bool) -> list[float]:
    return [study.chosen(chance, among_all=among_all) for study in studies]


def _coverage(name: str, studies: Sequence[Finished]) -> str:
    foremost = [each for study in studies if (each := study.foremost) is not None]
    verified = [each for each in foremost if each.verified]
    others = [each for each in foremost if not each.verified]
    everything = [each for study in studies for each in study.believed]
    cells = [
        f"{sum(each.holds for each in group)} of {len(group)}"
        for group in (verified, others, everything)
    ]
    width = np.median([50 * (each.high - each.low) for each in verified]) if verified else math.nan
    return f"| {name} | {' | '.join(cells)} | {width:.2f} |"


def _line(name: str, rule: str, studies: Sequence[Finished], gains: Sequence[float]) -> str:
    regrets = sorted(100 * math.expm1(s.best - g) for s, g in zip(studies, gains, strict=True))
    p90 = regrets[math.ceil(0.9 * len(regrets)) - 1]
    harmed = sum(gain < -math.log(1.01) for gain in gains)
    cells = [name, rule, f"{np.median(regrets):.2f}", f"{p90:.2f}", f"{np.mean(regrets):.2f}"]
    return f"| {' | '.join(cells)} | {harmed} of {len(studies)} |"


def finish(folder: Path, name: str, seed: int) -> Finished:
    """One whole study in virtual time."""
    grid = grid_of(name, folder)
    cluster = Cluster(grid, seed)
    study = Study(cluster.start, load_knobs(), grid.default, hosts=grid.hosts)
    with tempfile.TemporaryDirectory() as run:
        options = TuneOptions(trials=TRIALS, seed=seed)
        verdict = tune(study, Path(run), options, clock=cluster.clock).verdict
        view = read_study(Path(run))
    settings = {trial.number: trial.setting for trial in view.trials}
    believed = tuple(
        Believed(
            from_percent(belief.gain_percent),
            from_percent(belief.low_percent),
            from_percent(belief.high_percent),
            float(grid.gain(settings[number])),
            settings[number] == verdict.candidate,
        )
        for number, belief in view.beliefs.items()
    )
    in_use = float(grid.gain(verdict.setting))
    return Finished(name, seed, verdict.kind, grid.best, in_use, believed)


def _finish(wanted: Sequence[tuple[str, int]], folder: Path, jobs: int) -> Iterator[Finished]:
    one = functools.partial(finish, folder)
    if jobs == 1:
        yield from itertools.starmap(one, wanted)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(one, *zip(*wanted, strict=True))


def _read(path: Path | None) -> dict[tuple[str, int], Finished]:
    if path is None or not path.exists():
        return {}
    studies = [msgspec.json.decode(line, type=Finished) for line in path.read_bytes().splitlines()]
    return {(study.scenario, study.seed): study for study in studies}


if __name__ == "__main__":
    main()
