"""Whole studies whose trials are read with the reference's blocks of the pairs just before.

    OPENBLAS_NUM_THREADS=1 python -m studies.tuning.neighbours transformer --seeds 20

Every study is done twice in virtual time, with the same seed: by hvdtune as it is, and with trials
from whose pairs a share is taken off of how much slower their own blocks of the reference were than
those before them, which have the same expectation whatever the setting is. The spread of a pair is
learnt from A/A pairs that are read in the same way, so quieter pairs count for more, and fewer of
them make a trial. Race and verification are as they are. The share is fixed, which needs no
coefficient that a few pairs would have to tell.
"""

from __future__ import annotations

import argparse
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final
from unittest import mock

import numpy as np

from hvdtune.core.config.knobs import Setting
from hvdtune.tuner.measure.blocks import Block, Order
from hvdtune.tuner.measure.pair_runner import PairRunner
from hvdtune.tuner.storage.pair_log import Pair
from studies.tuning import offline
from studies.tuning.recordings.record import DATA
from studies.tuning.recordings.scenarios import SCENARIOS

_READ_WITH_OTHERS: Final = ("calibrate", "search")


class NeighbourlyRunner(PairRunner):
    """Takes off what the reference's blocks of earlier pairs say of those of this one.

    Earlier ones count as long as they are of the same launch and reference.
    """

    pairs_before: int = 8
    share: float = 0.5

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._before: deque[float] = deque(maxlen=self.pairs_before)
        self._of: tuple[int, Setting] | None = None
        self._ahead = 0.0

    def _once(self, *arguments: Any, **options: Any) -> tuple[Pair, bool]:
        pair, again = super()._once(*arguments, **options)
        if pair.phase in _READ_WITH_OTHERS and pair.typical_log_ratio is not None:
            read = pair.typical_log_ratio - self.share * self._ahead
            pair = replace(pair, typical_log_ratio=read)
        return pair, again

    def _learn(self, setting: Setting, order: Order, blocks: Sequence[Block]) -> None:
        super()._learn(setting, order, blocks)
        reference = self.default if setting == self.in_use.setting else self.in_use.setting
        if self._of != (self.run.launch, reference):
            self._of = (self.run.launch, reference)
            self._before.clear()
        each = zip(order, blocks, strict=True)
        own = float(np.mean([np.log(b.typical_step_s) for letter, b in each if letter == "A"]))
        self._ahead = own - float(np.mean(self._before)) if self._before else 0.0
        self._before.append(own)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("scenarios", nargs="*")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--before", type=int, default=NeighbourlyRunner.pairs_before)
    parser.add_argument("--share", type=float, default=NeighbourlyRunner.share)
    arguments = parser.parse_args()
    NeighbourlyRunner.pairs_before = arguments.before
    NeighbourlyRunner.share = arguments.share
    print(offline.HEAD)
    for name in arguments.scenarios or SCENARIOS:
        plain = list(offline.run(name, DATA, "hvdtune", arguments.seeds, 1))
        print(offline.summary(f"{name}, as it is", plain), flush=True)
        with mock.patch("hvdtune.tuner.controller.PairRunner", NeighbourlyRunner):
            read = list(offline.run(name, DATA, "hvdtune", arguments.seeds, 1))
        print(offline.summary(f"{name}, neighbours", read), flush=True)
        print(difference(name, plain, read), flush=True)


def difference(name: str, plain: Sequence[dict[str, Any]], read: Sequence[dict[str, Any]]) -> str:
    """The mean over seeds of what neighbours change, with its standard error."""
    said = []
    for column in ("regret_percent", "steps", "lost_percent_10000", "lost_percent_50000"):
        each = np.array([b[column] - a[column] for a, b in zip(plain, read, strict=True)])
        error = each.std(ddof=1) / np.sqrt(len(each))
        said.append(f"{column} {each.mean():+.2f} +- {error:.2f}")
    return f"{name}, with neighbours less without: {', '.join(said)}"


if __name__ == "__main__":
    main()
