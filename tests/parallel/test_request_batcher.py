"""When gradients that became ready are handed to the core."""

import math

import numpy as np
import pytest

from hvdtune.core.gradients.request_batcher import RequestBatcher
from hvdtune.core.rank.collectives import ReduceOp, Reduction, allreduce_request
from tests.parallel.ranks import run


def submitted_after_each_of_three(flush_bytes, flush_after_s):
    batcher = RequestBatcher(flush_bytes, flush_after_s)
    values = np.ones(3, dtype=np.float32)
    submitted = []
    for index in range(3):
        request = allreduce_request(f"v{index}", [("float32", [1])], Reduction(ReduceOp.SUM))
        batcher.add(request, [values[index:].ctypes.data], 4, [values])
        batcher.flush_when_due()
        submitted.append(batcher._batches[-1].is_submitted)
    batcher.wait()
    return submitted, values.tolist()


@pytest.mark.parametrize(
    ("limits", "submitted"),
    [
        ((1 << 30, math.inf), [False, False, False]),
        ((8, math.inf), [False, True, False]),  # two of four bytes
        ((1 << 30, 0.0), [True, True, True]),  # none waits for another
    ],
)
def test_gradients_wait_for_each_other_up_to_a_size_and_a_time(limits, submitted):
    assert run(submitted_after_each_of_three, 2, *limits) == [(submitted, [2.0] * 3)] * 2
