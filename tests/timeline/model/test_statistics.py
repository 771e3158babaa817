import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hvdtune.timeline import load
from hvdtune.timeline.analysis.overview import overview
from hvdtune.timeline.model.coverage import cover
from hvdtune.timeline.model.intervals import covered_ns
from hvdtune.timeline.model.statistics import statistics_of
from tests.kit.traces import event, write

SPANS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 50), st.integers(0, 20)), max_size=20)


@given(SPANS)
def test_each_group_covers_the_union_of_its_slices(spans):
    group, begin, lasted = np.array(spans, np.int64).reshape(-1, 3).T
    half = len(group) // 2
    whole = group.astype(np.int32), begin, begin + lasted
    parts = [tuple(column[part] for column in whole) for part in (slice(half), slice(half, None))]
    result = cover(parts, 4)
    for number in range(4):
        own = group == number
        assert result.total_ns()[number] == covered_ns(begin[own], (begin + lasted)[own])
    bins = result.busy(16)
    width = max(result.span_ns, 1) / 16
    np.testing.assert_allclose(bins.sum(axis=1) * width, result.total_ns(), atol=1e-3)
    assert (bins <= 1.0001).all()


def test_bins_say_where_a_thread_was_busy(tmp_path):
    path = write(tmp_path / "a.json", event("X", 0, dur=5), event("X", 15, dur=5))
    thread = statistics_of(load(path)).threads[0]
    quarters = np.array(thread.busy).reshape(4, -1).mean(axis=1)
    np.testing.assert_allclose(quarters, [1, 0, 0, 1], atol=1e-3)
    assert thread.busy_ms == 0.010


def test_times_are_sums_by_name_and_unions_by_kind(tmp_path):
    path = write(
        tmp_path / "a.json",
        event("X", 0, "aten::mm", dur=10, cat="cpu_op"),
        event("X", 5, "aten::mm", dur=10, cat="cpu_op"),
        event("i", 1, "mark"),
    )
    told = statistics_of(load(path))
    assert [(row.name, row.count, row.total_ms) for row in told.names] == [
        ("aten::mm", 2, 0.020), ("mark", 1, 0.0),
    ]  # fmt: skip
    assert [(row.kind, row.count, row.busy_ms) for row in told.kinds] == [("COMPUTE", 2, 0.015)]


def test_an_empty_trace_has_empty_statistics(tmp_path):
    title = {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "p"}}
    found = overview([write(tmp_path / "a.json", title)])
    assert found.duration_ms() is None
    assert found.document()["slices"] == 0
