"""From steps to blocks to pairs. Pure: the job that takes the steps is elsewhere.

A block is a run of consecutive steps under one setting. A pair is four blocks, two of the
reference (A) and two of the setting (B), as ABBA or BAAB: a drift that is linear over the four
cancels. (Where each block is a launch a pair is two, AB or BA, and so it is where its first half
says that the setting is hopeless.) A pair yields one log ratio.
"""

import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from hvdtune.core.job.channel import StepDone

Order = Literal["ABBA", "BAAB", "AB", "BA"]

_CUT_SHORT_AFTER = 2.0
_MAX_BLOCK_STEPS = 512
_SHORTER = 0.75


@dataclass(frozen=True)
class BlockShape:
    """Steps per block, steps discarded before it, and the expected time of one reference step.

    `source` says by what a block is measured that is a launch of its own, "" in a live run.
    """

    steps: int
    settle_steps: int
    step_s: float
    source: str = ""

    @property
    def longest_s(self) -> float:
        """A block is cut short there, so that a 50 times slower setting costs seconds only."""
        return _CUT_SHORT_AFTER * self.steps * self.step_s

    @property
    def pair_s(self) -> float:
        """Seconds of a pair when the setting is as fast as the reference."""
        return 4 * (self.steps + self.settle_steps + 2) * self.step_s


@dataclass(frozen=True)
class Interference:
    """What disturbs a block: shares of its time, a rate, its longest step over its median step."""

    steal: float = 0.0
    pressure: float = 0.0
    retransmits_per_s: float = 0.0
    longest_step: float = 1.0


@dataclass(frozen=True)
class Block:
    """`total_s` is the slowest rank's sum over the block's steps, `cpu_s` what all ranks' processes
    used meanwhile (0 where nobody asks), `numbers` are the steps' own. `shorter_s` is the mean of
    the steps without the longest quarter, None where single steps are not known."""

    steps: int
    total_s: float
    interference: Interference = Interference()
    cpu_s: float = 0.0
    numbers: tuple[int, ...] = ()
    shorter_s: float | None = None

    @property
    def step_s(self) -> float:
        """Mean step time."""
        return self.total_s / self.steps

    @property
    def typical_step_s(self) -> float:
        """Mean step time without the longest quarter of the steps, as far as it is known.

        On a shared machine most of the noise is in a few long steps: by typical steps half as many
        pairs tell settings apart. What is proved is proved by all steps.
        """
        return self.step_s if self.shorter_s is None else self.shorter_s


@dataclass(frozen=True)
class PairTimes:
    """The blocks of a pair in the order in which they ran; times are geometric means."""

    order: Order
    blocks: tuple[Block, ...]

    @property
    def reference_step_s(self) -> float:
        """Mean step time of the reference's blocks."""
        return self._step_s("A")

    @property
    def setting_step_s(self) -> float:
        """Mean step time of the setting's blocks."""
        return self._step_s("B")

    @property
    def steps(self) -> int:
        """The steps of all blocks together."""
        return sum(block.steps for block in self.blocks)

    @property
    def log_ratio(self) -> float:
        """ln(reference / setting): positive when the setting is faster."""
        return log_ratio(self.order, [block.step_s for block in self.blocks])

    @property
    def typical_log_ratio(self) -> float:
        """The same of typical steps."""
        return log_ratio(self.order, [block.typical_step_s for block in self.blocks])

    @property
    def first_half(self) -> "PairTimes":
        """One block of each."""
        order: Order = "AB" if self.order[0] == "A" else "BA"
        return PairTimes(order, self.blocks[:2])

    def _step_s(self, which: str) -> float:
        times = zip(self.order, self.blocks, strict=True)
        return statistics.geometric_mean(block.step_s for each, block in times if each == which)


def shape_for(step_s: float, block_s: float, min_steps: int) -> BlockShape:
    """Blocks of about `block_s` for steps of `step_s`, at least `min_steps` long."""
    steps = min(max(min_steps, math.ceil(block_s / step_s)), max(min_steps, _MAX_BLOCK_STEPS))
    return BlockShape(steps, settle_steps=math.ceil(steps / 5), step_s=step_s)


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
        self._numbers: list[int] = []
        self._rank_totals_ns: list[int] = []
        self.adopted = False
        self.done = False

    def add(self, step: StepDone) -> None:
        """Take the job's next step."""
        if self.done or step.version != self._version:
            return
        self.adopted = True
        shape = self._shape
        if not self.settled:
            self._settled += 1
            self._settle_s += max(step.durations_ns) / 1e9
            return
        self._longest_ns.append(max(step.durations_ns))
        self._numbers.append(step.step)
        totals = self._rank_totals_ns or [0] * len(step.durations_ns)
        self._rank_totals_ns = [a + b for a, b in zip(totals, step.durations_ns, strict=True)]
        enough = len(self._longest_ns) >= shape.steps
        too_slow = len(self._longest_ns) >= 3 and self._total_s() > shape.longest_s
        self.done = enough or too_slow

    @property
    def settled(self) -> bool:
        """Return whether the next step of the version counts."""
        shape = self._shape
        return self._settled >= shape.settle_steps or self._settle_s >= shape.longest_s

    @property
    def longest_step(self) -> float:
        """The longest step over the median step, 1 if there are too few to tell."""
        longest = self._longest_ns
        return max(longest) / statistics.median(longest) if len(longest) > 2 else 1.0

    def block(self, interference: Interference | None = None, cpu_s: float = 0.0) -> Block:
        """The finished block; `interference` and `cpu_s` are of its time."""
        interference = interference or Interference(longest_step=self.longest_step)
        numbers = tuple(self._numbers)
        kept_ns = sorted(self._longest_ns)[: max(1, int(_SHORTER * len(numbers)))]
        shorter_s = statistics.fmean(kept_ns) / 1e9
        return Block(len(numbers), self._total_s(), interference, cpu_s, numbers, shorter_s)

    def _total_s(self) -> float:
        return max(self._rank_totals_ns) / 1e9


def log_ratio(order: Order, values: Sequence[float]) -> float:
    """ln(reference / setting) of one positive value per block, in the order in which they ran."""
    share = 2 / len(order)
    signs = {"A": share, "B": -share}
    each = zip(order, values, strict=True)
    return sum(signs[letter] * math.log(value) for letter, value in each)
