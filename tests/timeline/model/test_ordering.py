"""Rows have one order, whatever order they come in."""

import numpy as np
import pytest

from hvdtune.timeline.model import ordering
from hvdtune.timeline.model.ordering import time_order


@pytest.mark.parametrize("rows_at_once", [7, 1 << 20])
@pytest.mark.parametrize("seed", range(20))
def test_equal_begins_are_ordered_by_each_key_in_turn(monkeypatch, seed, rows_at_once):
    monkeypatch.setattr(ordering, "_PART", rows_at_once)
    random = np.random.default_rng(seed)
    begin = random.integers(0, 10 + 4 * seed, 30 * seed)
    ties = [random.integers(0, 1 + width, len(begin)) for width in range(seed % 5)]
    assert time_order(begin, ties).tolist() == np.lexsort([*reversed(ties), begin]).tolist()
