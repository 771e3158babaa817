"""Blocks in which something else happened: told from what is usual here. Pure.

A pair is set aside and measured again when one of its blocks is far outside what the reference's
own blocks have shown lately. What is usual moves along, so on a machine that is always busy
nothing is set aside for that.

Reference and setting are judged by one rule; `pairs.counted` sees to it that setting pairs aside
favours nobody.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

import numpy as np

from hvdtune.tuner.measure.blocks import Block, Interference, Order

_KEPT = 64
_ENOUGH = 16
_PAUSE_WITHOUT_NORM = 10.0
# Beyond the upper quartile, whatever the spread: less does not matter to a step time.
_SLACK = {"steal": 0.03, "pressure": 0.15, "retransmits_per_s": 20.0, "longest_step": 2.0}
_WORDS = {
    "steal": "other virtual machines took {:.0%} of the processors' time",
    "pressure": "tasks waited for a processor {:.0%} of the time",
    "retransmits_per_s": "{:.0f} TCP segments retransmitted per second",
    "longest_step": "a step {:.1f} times as long as the others",
}


@dataclass(frozen=True)
class Disturbance:
    """`letters` are those of the blocks at fault ("A", "B" or "AB")."""

    letters: str
    reason: str


class OutlierDetector:
    """What is usual: the latest readings of the reference's blocks."""

    def __init__(self) -> None:
        self._usual: deque[Interference] = deque(maxlen=_KEPT)

    def add(self, interferences: Iterable[Interference]) -> None:
        """Readings of the reference's blocks, contaminated or not."""
        self._usual.extend(interferences)

    def detect(self, order: Order, blocks: Sequence[Block]) -> Disturbance | None:
        """The largest disturbance of a pair, None if it was not disturbed."""
        limits = self._limits()
        found = [
            (letter, name, getattr(block.interference, name))
            for letter, block in zip(order, blocks, strict=True)
            for name, limit in limits.items()
            if getattr(block.interference, name) > limit
        ]
        if not found:
            return None
        letters = "".join(sorted({letter for letter, _, _ in found}))
        _, name, value = max(found, key=lambda each: each[2] / max(limits[each[1]], 1e-9))
        return Disturbance(letters, _WORDS[name].format(value))

    def _limits(self) -> dict[str, float]:
        if len(self._usual) < _ENOUGH:
            return {"longest_step": _PAUSE_WITHOUT_NORM}
        limits = {}
        for field in fields(Interference):
            values = [getattr(interference, field.name) for interference in self._usual]
            low, high = np.percentile(values, [25, 75])
            limits[field.name] = float(high + max(3 * (high - low), _SLACK[field.name]))
        return limits
