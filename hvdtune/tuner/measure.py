"""From steps to blocks to pairs. Pure: the job that takes the steps is elsewhere.

A block is a run of consecutive steps under one setting. A pair is four blocks, two of the
reference (A) and two of the setting (B), as ABBA or BAAB: a drift that is linear over the four
cancels. (Where each block is a launch a pair is two, AB or BA.) A pair yields one log ratio.
"""

import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from hvdtune.core.job import StepDone

Order = Literal["ABBA", "BAAB", "AB", "BA"]

_CUT_SHORT_AFTER = 4.0
_PAUSE = 10.0
_MAX_BLOCK_STEPS = 512


@dataclass(frozen=True)
class BlockShape:
    """Steps per block, steps discarded before it, and the expected time of one reference step."""

    steps: int
    settle_steps: int
    step_s: float

    @property
    def longest_s(self) -> float:
        """A block is cut short there, so that a 50 times slower setting costs seconds only."""
        return _CUT_SHORT_AFTER * self.steps * self.step_s

    @property
    def pair_s(self) -> float:
        """What a pair takes when the setting is as fast as the reference."""
        return 4 * (self.steps + self.settle_steps + 2) * self.step_s


@dataclass(frozen=True)
class Block:
    """`total_s` is the slowest rank's sum over the block's steps."""

    steps: int
    total_s: float
    paused: bool = False

    @property
    def step_s(self) -> float:
        """Mean step time."""
        return self.total_s / self.steps


@dataclass(frozen=True)
class PairTimes:
    """What the blocks of a pair say: geometric mean step times and their log ratio."""

    order: Order
    reference_step_s: float
    setting_step_s: float
    steps: int

    @property
    def log_ratio(self) -> float:
        """ln(reference / setting): positive when the setting is faster."""
        return math.log(self.reference_step_s / self.setting_step_s)


def shape_for(step_s: float, block_s: float, min_steps: int) -> BlockShape:
    """Blocks of about `block_s` for steps of `step_s`, at least `min_steps` long."""
    steps = min(max(min_steps, math.ceil(block_s / step_s)), max(min_steps, _MAX_BLOCK_STEPS))
    return BlockShape(steps, settle_steps=max(2, math.ceil(steps / 5)), step_s=step_s)


def orders(seed: str) -> tuple[Order, Order]:
    """The orders of two consecutive pairs: one of each, which comes first is drawn.

    Strict alternation would fall into step with anything the script does at regular intervals.
    """
    if random.Random(seed).random() < 0.5:
        return ("ABBA", "BAAB")
    return ("BAAB", "ABBA")


class BlockMeter:
    """Takes steps until the block of one setting version is complete.

    Steps of other versions and those inside which a version was adopted (-1) do not count, then
    the settle steps do not, then `shape.steps` do.
    """

    def __init__(self, version: int, shape: BlockShape) -> None:
        self._version = version
        self._shape = shape
        self._settled = 0
        self._settle_s = 0.0
        self._longest_ns: list[int] = []
        self._rank_totals_ns: list[int] = []
        self.adopted = False
        self.done = False

    def add(self, step: StepDone) -> None:
        """Take the job's next step."""
        if self.done or step.version != self._version:
            return
        self.adopted = True
        shape = self._shape
        if self._settled < shape.settle_steps and self._settle_s < shape.longest_s:
            self._settled += 1
            self._settle_s += max(step.durations_ns) / 1e9
            return
        self._longest_ns.append(max(step.durations_ns))
        totals = self._rank_totals_ns or [0] * len(step.durations_ns)
        self._rank_totals_ns = [a + b for a, b in zip(totals, step.durations_ns, strict=True)]
        enough = len(self._longest_ns) >= shape.steps
        too_slow = len(self._longest_ns) >= 3 and self._total_s() > shape.longest_s
        self.done = enough or too_slow

    def block(self) -> Block:
        """The finished block."""
        longest = self._longest_ns
        paused = len(longest) > 2 and max(longest) > _PAUSE * statistics.median(longest)
        return Block(len(longest), self._total_s(), paused)

    def _total_s(self) -> float:
        return max(self._rank_totals_ns) / 1e9


def pair_times(order: Order, blocks: Sequence[Block]) -> PairTimes:
    """The four blocks of a pair, in the order in which they ran, as one observation."""
    times = {
        which: math.sqrt(
            math.prod(
                block.step_s for letter, block in zip(order, blocks, strict=True) if letter == which
            )
        )
        for which in "AB"
    }
    return PairTimes(order, times["A"], times["B"], sum(block.steps for block in blocks))
