import os

import numpy as np
import pytest

from hvdtune.dashboard import lanes
from hvdtune.dashboard.lanes import MAX_DEPTH, SwimlaneRow, depths, lanes_of, whole_stretches

from .synthetic import Recording, training_trace

WINDOWS = int(os.environ.get("HVDTUNE_TEST_WINDOWS", "400"))  # the slow suite: 10,000


def lane(spans):
    begin, end = (np.array(sorted(spans)).reshape(-1, 2).T).astype(np.int64)
    return SwimlaneRow(
        0, "x", begin, end, np.zeros(len(begin), np.uint8), np.arange(len(begin), dtype=np.int32)
    )


def random_lane(rng):
    count = int(rng.integers(0, 60))
    begin = rng.integers(0, 3_000, count)
    length = rng.choice([0, 0, 1, 5, 80, 700], count)
    return lane(list(zip(begin, begin + length, strict=True))) if count else lane([])


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


def test_the_busy_share_of_every_pixel_is_exact_and_no_slice_is_invisible():
    rng = np.random.default_rng(7)
    for _ in range(WINDOWS):
        chosen = random_lane(rng)
        first = int(rng.integers(-200, 3_500))
        pixels = int(rng.integers(1, 40))
        span = pixels * int(rng.integers(1, 60))
        edges = first + np.arange(pixels + 1, dtype=np.int64) * span // pixels
        share, seen = brute_force(chosen, edges)
        (busy,) = lanes.busy([chosen], edges)
        assert np.abs(busy / 255 - share).max() <= 1 / 255 + 1e-12
        assert np.array_equal(busy > 0, seen)


def test_a_slice_of_a_ns_shows_in_a_pixel_of_a_second():
    edges = np.arange(11, dtype=np.int64) * 1_000_000_000
    spans = [(2_500_000_000, 2_500_000_001), (7_000_000_000, 7_000_000_000)]
    (busy,) = lanes.busy([lane(spans)], edges)
    assert busy.tolist() == [0, 0, 1, 0, 0, 0, 0, 1, 0, 0]


def test_what_touches_a_window_is_found_however_long_ago_it_began():
    chosen = lane([(0, 1_000), (10, 20), (500, 500), (900, 950)])
    low, high = chosen.within(400, 600)
    assert chosen.begin[low:high].tolist() == [0, 10, 500]
    assert chosen.within(2_000, 3_000)[0] == 4


def test_slices_of_one_row_do_not_overlap():
    rng = np.random.default_rng(3)
    begin = np.sort(rng.integers(0, 10_000, 300))
    end = begin + rng.integers(0, 120, 300)
    depth = depths(begin, end)
    for row in range(MAX_DEPTH - 1):
        mine = depth == row
        assert (begin[mine][1:] >= end[mine][:-1]).all()
    assert depth.max() < MAX_DEPTH


def test_rows_of_slices_do_not_depend_on_where_the_window_begins():
    chosen = lane([(0, 100), (10, 90), (20, 80), (200, 300)])
    low, high = chosen.within(85, 95)
    assert (low, high) == (0, 3)
    first, last = whole_stretches(chosen, 2, 3)
    assert (first, last) == (0, 3)
    assert depths(chosen.begin[first:last], chosen.end[first:last]).tolist() == [0, 1, 2]


def test_computing_is_what_a_step_has_besides_waits_and_named_spans():
    recording = Recording()
    recording.add(0, "STEP", (0, 100), seq=0)
    recording.add(0, "BLOCKED", (60, 90))
    recording.add(0, "SPAN", (10, 30), name="input")
    (compute, wait) = lanes_of(recording.trace(1).events)
    assert (compute.label, wait.label) == ("compute", "wait")
    spans = list(
        zip(compute.begin.tolist(), compute.end.tolist(), (compute.row >= 0).tolist(), strict=True)
    )
    assert spans == [
        (0, 10_000, False),
        (10_000, 30_000, True),
        (30_000, 60_000, False),
        (90_000, 100_000, False),
    ]


def test_every_rank_has_the_same_lanes_and_those_without_slices_are_left_out():
    labels = [(each.rank, each.label) for each in lanes_of(training_trace(ranks=2).events)]
    one = ["compute", "negotiate", "queue", "pack", "communicate", "unpack"]
    assert labels == [(rank, label) for rank in (0, 1) for label in one]


def test_a_trace_without_buckets_shows_its_operations():
    recording = Recording()
    recording.add(0, "ALLREDUCE", (0, 100), name="t", arg=8)
    (only,) = lanes_of(recording.trace(1).events)
    assert (only.label, only.end.tolist()) == ("communicate", [100_000])


@pytest.mark.parametrize("spans", [[], [(5, 5)], [(0, 10), (10, 10), (10, 20)]])
def test_edge_cases_are_drawn(spans):
    edges = np.arange(0, 31, 10, dtype=np.int64)
    share, seen = brute_force(lane(spans), edges)
    (busy,) = lanes.busy([lane(spans)], edges)
    assert np.array_equal(busy > 0, seen)
    assert np.abs(busy / 255 - share).max() <= 1 / 255
