"""Settings that must lead to the same buckets and messages. Pure.

What is ready together depends on the moment, so two thresholds count as the same only when no set
of a step's tensors can tell them apart. `plan_fusion` and `due_ns` of the core ask two things of
a threshold: does it hold these bytes together, and are so many bytes enough not to wait for more?
"""

import json
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hvdtune.core.config.knobs import Setting
from hvdtune.horovod.vocabulary import ALLREDUCE_ROUTES
from hvdtune.tuner.space.search_space import key_of

_MOST_SUMS = 1 << 15
_BEYOND = (1 << 32) - 1


@dataclass(frozen=True)
class Sums:
    """Bytes that some of a step's tensors can have together, ascending; none of them lies outside
    `sums` unless `partial`: then only the smallest and the sum of all are known."""

    sums: tuple[int, ...]
    partial: bool = False


def possible_sums(tensor_bytes: Sequence[int]) -> Sums:
    """The sums of tensors of these sizes; a size of 4 GiB - 1 means that or more."""
    sizes = Counter(size for size in tensor_bytes if size > 0)
    if not sizes:
        return Sums(())
    if max(sizes) >= _BEYOND:
        return Sums((min(sizes), max(sizes) * (len(tensor_bytes) + 1)), partial=True)
    sums = {0}
    for size, count in sizes.items():
        if len(sums) * (count + 1) > 64 * _MOST_SUMS:
            break
        sums = {start + size * number for start in sums for number in range(count + 1)}
        if len(sums) > _MOST_SUMS:
            break
    else:
        return Sums(tuple(sorted(sums - {0})))
    total = sum(size * count for size, count in sizes.items())
    return Sums((min(sizes), total), partial=True)


def plan_key(tensor_bytes: Sequence[int]) -> Callable[[Setting], str]:
    """A function that gives settings of the same plan the same text.

    Args:
        tensor_bytes: of everything a step sends, one number per request; none if not known.
    """
    sums = possible_sums(tensor_bytes)

    def key(setting: Setting) -> str:
        plan = dict(setting)
        if setting.get("allreduce_algorithm", "auto") != "auto":
            # A named algorithm is taken before these are looked at.
            for knob in ALLREDUCE_ROUTES:
                plan.pop(knob, None)
        threshold = setting.get("fusion_threshold_bytes")
        if not isinstance(threshold, int) or not sums.sums:
            return key_of(plan)
        del plan["fusion_threshold_bytes"]
        return json.dumps([key_of(plan), _buckets(sums, threshold, setting)])

    return key


def _buckets(sums: Sums, threshold: int, setting: Setting) -> list[int]:
    if threshold == 0:
        # Nothing is fused and no bytes are enough; without a window nothing waits for more.
        return [0, 0] if setting.get("cycle_time_ms") == 0 else [-1, 0]
    if sums.partial and sums.sums[0] <= threshold <= sums.sums[-1]:
        return [threshold]
    return [bisect_right(sums.sums, threshold), bisect_left(sums.sums, threshold)]
