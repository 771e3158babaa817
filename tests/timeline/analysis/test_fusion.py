"""The planner of buckets: the core's, and the one for installations without a compiler."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvdtune.timeline.analysis.fusion import NEVER_FUSES, plan_in_python

native = pytest.importorskip("hvdtune.timeline._plan", exc_type=ImportError)

TENSORS = st.lists(st.tuples(st.integers(0, 20), st.integers(NEVER_FUSES, 2)), max_size=20)


@given(TENSORS, st.integers(0, 60))
def test_both_planners_fill_the_same_buckets(
    tensors: list[tuple[int, int]], threshold: int
) -> None:
    sizes, kinds = [size for size, _ in tensors], [kind for _, kind in tensors]
    assert plan_in_python(sizes, kinds, threshold) == native.plan_buckets(sizes, kinds, threshold)
