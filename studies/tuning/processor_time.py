"""Whether processor time explains what a pair spreads by: a short recording, on a machine as it is.

    python -m studies.tuning.processor_time many-small --minutes 3

Pairs of the default with itself and of a few other settings, of whose blocks Linux tells how long
all threads of the ranks had a processor, and how long they could run and had none (schedstat). Of
both, the default's blocks less the setting's are covariates of the pair if the setting does not
move them: "moved" counts the settings for which a t test says that it does (p < 0.05). The
coefficient comes from the other pairs (cross-fitted in five parts).
"""

from __future__ import annotations

import argparse
import os
import time
from collections import defaultdict
from pathlib import Path
from typing import Final

import numpy as np
from scipy import stats

from hvdtune.core.config.knobs import Setting
from hvdtune.core.job.channel import Formed
from studies.tuning.covariates import cross_fitted, sd, typical
from studies.tuning.recordings.jobs import starter
from studies.tuning.recordings.record import SETTLE_STEPS, Launch
from studies.tuning.recordings.scenarios import SCENARIOS

OTHERS: Final[tuple[Setting, ...]] = (
    {"cycle_time_ms": 20.0},
    {"chunk_bytes": 64 << 10},
    {"fusion_threshold_bytes": 512 << 10},
)
_PARTS: Final = 5


class WatchedLaunch(Launch):
    """A launch that notes the processor time of each block: with one, and without, in seconds."""

    def pair(self, setting: Setting) -> tuple[str, list[list[int]]]:
        self.used: list[tuple[float, float]] = []
        return super().pair(setting)

    def _block(self, setting: Setting) -> list[int]:
        before = self._processor_time()
        steps = super()._block(setting)
        after = self._processor_time()
        self.used.append((after[0] - before[0], after[1] - before[1]))
        return steps

    def _event(self) -> object:
        event = super()._event()
        if isinstance(event, Formed):
            self._pids = [rank.pid for rank in event.ranks]
        return event

    def _processor_time(self) -> tuple[float, float]:
        files = [
            file for pid in self._pids for file in Path(f"/proc/{pid}/task").glob("*/schedstat")
        ]
        fields = np.array([file.read_text().split()[:2] for file in files], dtype=float)
        with_one, without = fields.sum(axis=0) / 1e9
        return float(with_one), float(without)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("scenario", choices=SCENARIOS)
    parser.add_argument("--minutes", type=float, default=3.0)
    arguments = parser.parse_args()
    found = record(arguments.scenario, arguments.minutes)
    table = np.concatenate([rows - [rows[:, 0].mean(), 0, 0] for rows in found])
    parts = np.arange(len(table), dtype=float) % _PARTS
    plain = table[:, 0]
    shown = [plain, *(cross_fitted(plain, table[:, at], parts) for at in (1, 2))]
    moved = [sum(moves(rows[:, at]) for rows in found[1:]) for at in (1, 2)]
    load = os.getloadavg()[0]
    print("| scenario | load | pairs | sd % | processor time | moved | none to be had | moved |")
    print("|---|---|---|---|---|---|---|---|")
    print(
        f"| {arguments.scenario} | {load:.1f} | {len(table)} | {sd(shown[0])} | {sd(shown[1])} | "
        f"{moved[0]} of {len(OTHERS)} | {sd(shown[2])} | {moved[1]} of {len(OTHERS)} |"
    )


def moves(covariate: np.ndarray) -> bool:
    """Whether its mean is not 0."""
    return float(stats.ttest_1samp(covariate, 0.0).pvalue) < 0.05


def record(name: str, minutes: float) -> list[np.ndarray]:
    """Per setting, the default first, a row for each pair: its log ratio by typical steps, and the
    default's processor time less the setting's, with a processor and without, as shares of a
    block."""
    found: dict[int, list[tuple[float, float, float]]] = defaultdict(list)
    end = time.monotonic() + 60 * minutes
    with starter(name) as jobs, WatchedLaunch(jobs, 0) as launch:
        while time.monotonic() < end:
            for number, changed in enumerate(({}, *OTHERS)):
                order, blocks = launch.pair({**launch.default, **changed})
                found[number].append(row_of(order, blocks, launch.used))
    return [np.array(found[number]) for number in sorted(found)]


def row_of(
    order: str, blocks: list[list[int]], used: list[tuple[float, float]]
) -> tuple[float, float, float]:
    signs = [0.5 if letter == "A" else -0.5 for letter in order]
    logs = [np.log(typical(np.array(steps[SETTLE_STEPS:], dtype=float))) for steps in blocks]
    lasts_s = sum(map(sum, blocks)) / 1e6 / len(blocks)
    with_one, without = (
        sum(sign * each[at] for sign, each in zip(signs, used, strict=True)) / lasts_s
        for at in (0, 1)
    )
    return float(sum(s * value for s, value in zip(signs, logs, strict=True))), with_one, without


if __name__ == "__main__":
    main()
