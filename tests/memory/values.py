"""The inputs and right results of operations: whole numbers that every dtype holds exactly."""

from __future__ import annotations

from functools import cache

import numpy as np

from tests.memory.programs import Call


@cache
def _base(count: int) -> np.ndarray:
    return np.arange(count, dtype=np.int64) % 41


def input_of(call: Call, number: int, rank: int) -> np.ndarray:
    """Numbers below 64, in int64, so that sums over four ranks fit in a uint8 or a bfloat16."""
    return _base(call.count) + 5 * rank + number % 8


def _share(count: int, position: int, ranks: int) -> slice:
    each, more = divmod(count, ranks)
    begin = position * each + min(position, more)
    return slice(begin, begin + each + (position < more))


def splits_of(count: int, ranks: int) -> list[int]:
    each, more = divmod(count, ranks)
    return [each] * (ranks - 1) + [each + more]


def expected(call: Call, number: int, rank: int, ranks: int) -> np.ndarray:
    """Returns the result of this rank, in float64."""
    collective = call.collective.strip("_").removeprefix("grouped_")
    rows = [input_of(call, number, other) for other in range(ranks)]
    if collective == "broadcast":
        result = rows[call.root]
    elif collective == "allgather":
        result = np.concatenate(rows)
    elif collective == "alltoall":
        begin = sum(splits_of(call.count, ranks)[:rank])
        mine = slice(begin, begin + splits_of(call.count, ranks)[rank])
        result = np.concatenate([row[mine] for row in rows])
    else:
        result = np.sum(rows, axis=0)
        if collective == "reducescatter":
            result = result[_share(call.count, rank, ranks)]
    return result.astype(np.float64)
