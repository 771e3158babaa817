"""Studies of a job whose first setting is far too slow, beside busy processes, and what they claim.

    python -m studies.tuning.slow_start --steps 40        # 20 studies, over two hours, as root
    python -m studies.tuning.slow_start --studies 2 --seconds 60
    python -m studies.tuning.slow_start --first 12        # the last eight of the twenty

The job reduces 200 small tensors over two hosts, with fusion switched off and a cycle of 50 ms, as
a setting may be that was copied from elsewhere. Beside each study 0 to 3 processes compute, by
chance. What a study proves is checked by launches of its own, which begin with either setting in
turn: by how much faster the mean step is, with the 95 % interval of the mean over pairs of
launches. Where the study has seen one launch only, the check has to agree with what it expects of
others.
"""

import argparse
import contextlib
import math
import random
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hvdtune.core.config.knobs import Setting, load_knobs
from hvdtune.launcher.job import Job
from hvdtune.tuner.controller import tune
from hvdtune.tuner.measure.progress import StudyProgress, WallClock
from hvdtune.tuner.space.tune_options import TuneOptions
from hvdtune.tuner.stats.estimates import Estimate, estimate
from hvdtune.tuner.stats.verdict import Verdict
from hvdtune.tuner.study import Study
from studies.tuning.recordings.jobs import Starter, starter
from studies.tuning.recordings.record import Launch
from studies.tuning.recordings.scenarios import SCENARIOS
from studies.tuning.switches import load

SCENARIO: Final = "small-two-hosts"
SLOW: Final[Setting] = {"fusion_threshold_bytes": 0, "cycle_time_ms": 50.0}
_MOST_BUSY: Final = 3
_DECIDED: Final = ("improved", "default")
_LEAST_US: Final = 10_000_000  # of a launch that checks: so long at least


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--studies", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="the study to begin with, to go on")
    parser.add_argument("--seconds", type=float, default=180.0, help="the budget of each study")
    parser.add_argument("--launches", type=int, default=5, help="of each setting, to check it")
    parser.add_argument("--steps", type=int, default=150, help="of each of these launches, or more")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    draw = random.Random(arguments.seed)
    draws = [draw.randint(0, _MOST_BUSY) for _ in range(arguments.studies)]
    results: list[Result] = []
    print(HEAD, flush=True)
    with starter(SCENARIO) as jobs:
        for number, busy in list(enumerate(draws))[arguments.first :]:
            with load(busy):
                began = time.monotonic()
                verdict = study(jobs, arguments.seconds, arguments.seed + number)
                took_s = time.monotonic() - began
                checked = check(jobs, verdict, arguments.launches, arguments.steps)
            results.append(Result(number, busy, took_s, verdict, checked))
            print(results[-1].row(), flush=True)
            if not results[-1].is_decided:
                print(verdict.text, file=sys.stderr, flush=True)
    print(summary(results))


@dataclass(frozen=True)
class Result:
    """What a study has said and what its check found; None: there was nothing to check."""

    number: int
    busy: int
    took_s: float
    verdict: Verdict
    checked: Estimate | None

    @property
    def is_decided(self) -> bool:
        """Whether the study has verified a setting and come to an answer about it."""
        return self.verdict.kind in _DECIDED and self.verdict.candidate is not None

    @property
    def of_launches(self) -> tuple[float, float] | None:
        """The range in percent that the study gives for the mean over launches."""
        believed = self.verdict.believed
        if self.verdict.launches > 1 or believed is None:
            return self.verdict.ci_percent
        return believed.others_percent or (believed.low_percent, believed.high_percent)

    @property
    def holds(self) -> bool:
        """Whether the checked gain lies in that range."""
        if self.checked is None or self.of_launches is None:
            return False
        low, high = self.of_launches
        return low <= _percent(self.checked.mean) <= high

    @property
    def contradicts(self) -> bool:
        """Whether it has nothing in common with the interval of the check."""
        if self.checked is None or self.of_launches is None:
            return False
        low, high = self.of_launches
        return _percent(self.checked.high) < low or high < _percent(self.checked.low)

    def row(self) -> str:
        """A line of the table."""
        verdict, checked = self.verdict, self.checked
        claimed = "none"
        if verdict.gain_percent is not None and verdict.ci_percent is not None:
            claimed = _ranged(verdict.gain_percent, *verdict.ci_percent)
        expected = (
            "none" if self.of_launches is None else "{:.1f} to {:.1f}".format(*self.of_launches)
        )
        found = "none"
        if checked is not None:
            found = _ranged(*map(_percent, (checked.mean, checked.low, checked.high)))
        holds = "" if checked is None else "yes" if self.holds else "no"
        return (
            f"| {self.number} | {self.busy} | {self.took_s:.0f} | {verdict.kind} | {claimed} | "
            f"{verdict.pairs} in {verdict.launches} | {expected} | {found} | {holds} |"
        )


HEAD = (
    "| study | busy | seconds | verdict | gain % [95 %] | pairs, launches | over launches % | "
    "checked % [95 %] | within |\n|---|---|---|---|---|---|---|---|---|"
)


def study(jobs: Starter, seconds: float, seed: int) -> Verdict:
    """The verdict of a study of so many seconds that starts with the slow setting."""
    start = {**jobs.default, **SLOW}
    options = TuneOptions(time_budget_s=seconds, seed=seed)
    with contextlib.ExitStack() as ends, tempfile.TemporaryDirectory() as folder:

        def launch(number: int) -> Job:
            job = jobs.start(start, number)
            ends.callback(job.terminate)  # the last one goes on under what the verdict says
            return job

        what = Study(
            launch,
            load_knobs(),
            start,
            hosts=SCENARIOS[SCENARIO].hosts,
            first_settings=[jobs.default],  # as `hvdtune run` has it
        )
        return tune(what, Path(folder), options, _ignore, WallClock()).verdict


def check(jobs: Starter, verdict: Verdict, launches: int, steps: int) -> Estimate | None:
    """The log ratio of mean steps of the start's and the proved setting, by launches of each."""
    if verdict.candidate is None:
        return None
    settings = [{**jobs.default, **SLOW}, dict(verdict.candidate)]
    found: list[float] = []
    for number in range(launches):
        means = [0.0, 0.0]
        for at in (0, 1) if number % 2 == 0 else (1, 0):
            with Launch(jobs, number, settings[at]) as launch:
                means[at] = _mean_step(launch, steps)
        found.append(math.log(means[0] / means[1]))
    return estimate(found)


def _mean_step(launch: Launch, steps: int) -> float:
    taken = launch.run(steps)
    while sum(taken) < _LEAST_US:
        taken += launch.run(1)
    return statistics.fmean(taken)


def summary(results: list[Result]) -> str:
    """How many were decided, and how many claims the check bears out."""
    claims = [each for each in results if each.verdict.kind == "improved"]
    decided = sum(each.is_decided for each in results)
    holds = sum(each.holds for each in claims)
    contradicts = sum(each.contradicts for each in claims)
    return (
        f"\n{decided} of {len(results)} are decided; of {len(claims)} that claim a gain the range "
        f"over launches of {holds} holds the checked one, and that of {contradicts} has nothing in "
        "common with the interval of the check"
    )


def _percent(log_ratio: float) -> float:
    return 100 * math.expm1(log_ratio)


def _ranged(value: float, low: float, high: float) -> str:
    return f"{value:+.1f} [{low:.1f}, {high:.1f}]"


def _ignore(progress: StudyProgress) -> None:
    del progress


if __name__ == "__main__":
    main()
