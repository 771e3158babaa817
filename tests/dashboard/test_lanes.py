import os

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hvdtune.dashboard import lanes
from hvdtune.dashboard.lanes import MAX_DEPTH, SwimlaneRow, depths, lanes_of, whole_stretches

from .synthetic import Recording, training_trace

WINDOWS = int(os.environ.get("HVDTUNE_TEST_WINDOWS", "400"))  # the slow suite: 10,000


def lane(spans):
    begin, end = (np.array(sorted(spans)).reshape(-1, 2).T).astype(np.int64)
    return SwimlaneRow(
        0, "x", begin, end, np.zeros(len(begin), np.uint8), np.arange(len(begin), dtype=np.int32)
    )


SPANS = st.lists(
    st.tuples(st.integers(0, 3_000), st.sampled_from([0, 1, 5, 80, 700])).map(
        lambda span: (span[0], sum(span))
    ),
    max_size=60,
)


def brute_force(of, edges):
    """Each ns by itself."""
    covered = np.zeros(edges[-1] - edges[0] + 1, bool)
    touched = np.zeros(len(covered), bool)
    for begin, end in zip(of.begin - edges[0], of.end - edges[0], strict=True):
        covered[max(begin, 0) : max(end, 0)] = True
        if 0 <= begin < len(touched):
            touched[begin] = True
    shares = [
        covered[a:b].mean() for a, b in zip(edges - edges[0], edges[1:] - edges[0], strict=False)
    ]
    seen = [
        (covered | touched)[a:b].any()
        for a, b in zip(edges - edges[0], edges[1:] - edges[0], strict=False)
    ]
    return np.array(shares), np.array(seen)


@settings(max_examples=WINDOWS, deadline=None)
@given(SPANS, st.integers(-200, 3_500), st.integers(1, 40), st.integers(1, 60))
@example([], 0, 3, 10)
@example([(5, 5)], 0, 3, 10)
@example([(0, 10), (10, 10), (10, 20)], 0, 3, 10)
def test_the_busy_share_of_every_pixel_is_exact_and_no_slice_is_invisible(
    spans, first, pixels, pixel_ns
):
    edges = first + np.arange(pixels + 1, dtype=np.int64) * pixel_ns
    share, seen = brute_force(lane(spans), edges)
    (busy,) = lanes.busy([lane(spans)], edges)
    assert np.abs(busy / 255 - share).max() <= 1 / 255 + 1e-12
    assert np.array_equal(busy > 0, seen)


def test_a_slice_of_a_ns_shows_in_a_pixel_of_a_second():
    edges = np.arange(11, dtype=np.int64) * 1_000_000_000
    spans = [(2_500_000_000, 2_500_000_001), (7_000_000_000, 7_000_000_000)]
    (busy,) = lanes.busy([lane(spans)], edges)
    assert busy.tolist() == [0, 0, 1, 0, 0, 0, 0, 1, 0, 0]


LONG_AGO = [(0, 1_000), (10, 20), (500, 500), (900, 950)]
NESTED = [(0, 100), (10, 90), (20, 80), (200, 300)]


@pytest.mark.parametrize(
    ("spans", "window", "found"),
    [
        pytest.param(LONG_AGO, (400, 600), (0, 3), id="however long ago it began"),
        pytest.param(LONG_AGO, (2_000, 3_000), (4, 4), id="or nothing"),
        pytest.param(NESTED, (85, 95), (0, 3), id="with all it is nested in"),
    ],
)
def test_what_touches_a_window_is_found(spans, window, found):
    assert lane(spans).within(*window) == found


@given(SPANS)
def test_slices_of_one_row_do_not_overlap(spans):
    chosen = lane(spans)
    depth = depths(chosen.begin, chosen.end)
    for row in range(MAX_DEPTH - 1):
        mine = depth == row
        assert (chosen.begin[mine][1:] >= chosen.end[mine][:-1]).all()
    assert (depth < MAX_DEPTH).all()


def test_rows_of_slices_do_not_depend_on_where_the_window_begins():
    chosen = lane(NESTED)
    first, last = whole_stretches(chosen, 2, 3)
    assert (first, last) == (0, 3)
    assert depths(chosen.begin[first:last], chosen.end[first:last]).tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("events", "drawn"),
    [
        pytest.param(
            [("STEP", 0, 100), ("BLOCKED", 60, 90), ("SPAN", 10, 30)],
            {
                "busy": [(0, 10, 0), (10, 30, 1), (30, 60, 0), (90, 100, 0)],
                "wait": [(60, 90, 1)],
            },
            id="a step less waits and named spans",
        ),
        pytest.param(
            [("ALLREDUCE", 0, 100)], {"communicate": [(0, 100, 1)]}, id="no buckets but operations"
        ),
    ],
)
def test_lanes_have_their_slices_in_us_and_whether_they_are_events(events, drawn):
    recording = Recording()
    for kind, begin, end in events:
        recording.add(0, kind, (begin, end), name="t", arg=8)
    found = {
        each.label: list(zip(each.begin // 1000, each.end // 1000, each.row >= 0, strict=True))
        for each in lanes_of(recording.trace(1).events)
    }
    assert found == drawn


def test_every_rank_has_the_same_lanes_and_those_without_slices_are_left_out():
    labels = [(each.rank, each.label) for each in lanes_of(training_trace(ranks=2).events)]
    one = ["busy", "wait", "negotiate", "queue", "pack", "communicate", "unpack"]
    assert labels == [(rank, label) for rank in (0, 1) for label in one]


def test_a_trace_without_buckets_shows_its_operations():
    recording = Recording()
    recording.add(0, "ALLREDUCE", (0, 100), name="t", arg=8)
    (only,) = lanes_of(recording.trace(1).events)
    assert (only.label, only.end.tolist()) == ("communicate", [100_000])
