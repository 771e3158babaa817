"""Clocks of ranks that are wrong by seconds and drift, put right."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from hvdtune.timeline import Trace, merge
from hvdtune.timeline.model.schema import PROCESS_SET_UNIT
from hvdtune.timeline.reading.causality import _least_distance
from tests.kit import rank_files as files

RANKS = 8
STEPS = 400
STEP_NS = 25_000_000
Ints = NDArray[np.int64]


class Clock:
    """A rank's own clock: what it shows at a true time."""

    def __init__(self, offset_s: float, drift_ppm: float) -> None:
        self.offset_ns, self.drift = round(offset_s * 1e9), drift_ppm * 1e-6

    def __call__(self, true_ns: float) -> int:
        return round(true_ns + self.offset_ns + 20e9 + self.drift * true_ns)


def job(
    folder: Path, seed: int, *, slow_reply_ns: int = 20_000, pings_every: int = 20
) -> tuple[Trace, pd.DataFrame]:
    """A job's merged trace, and what is true: columns rank, seq, begin_ns (of announcements)."""
    random = np.random.default_rng(seed)
    clocks = [Clock(0, 0)] + [
        Clock(random.uniform(-5, 5), random.uniform(-100, 100)) for _ in range(RANKS - 1)
    ]
    items: list[list[bytes]] = [[] for _ in range(RANKS)]
    truth = []
    for step in range(STEPS):
        announced = step * STEP_NS + random.integers(0, 3_000_000, RANKS)
        received = announced.max() + random.exponential(60_000, RANKS).astype(np.int64) + 8_000
        for rank, clock in enumerate(clocks):
            begin, end = clock(int(announced[rank])), clock(int(received[rank]))
            items[rank].append(files.record("NEGOTIATE", begin, end, name=1, seq=step, bucket=step))
            truth.append((rank, step, int(announced[rank])))
            if rank and step % pings_every == 0:
                there, back = (10_000 + random.exponential(slow_reply_ns, 2)).astype(np.int64)
                sent = step * STEP_NS + 12_000_000
                middle = (clock(sent) + clock(sent + there + back)) // 2
                offset = clocks[0](sent + there) - middle
                items[rank].append(files.clock(middle, offset, int(there + back)))
    paths = [
        files.rank_file(folder, rank, rows, size=RANKS, host=f"host-{rank}")
        for rank, rows in enumerate(items)
    ]
    return merge(paths), pd.DataFrame(truth, columns=["rank", "seq", "true_ns"])


def announcements(trace: Trace) -> pd.DataFrame:
    return trace.events[trace.events["kind"] == "NEGOTIATE"]


@pytest.mark.parametrize("seed", range(3))
def test_offsets_of_seconds_and_drifts_leave_at_most_100_us(tmp_path: Path, seed: int) -> None:
    trace, truth = job(tmp_path, seed)
    both = announcements(trace).merge(truth, on=["rank", "seq"])
    shown = both["begin_ns"] - both["true_ns"]
    shown -= shown[both["rank"] == 0].iloc[0]
    assert len(both) == RANKS * STEPS
    assert shown.abs().quantile(0.95) <= 100_000


@pytest.mark.parametrize("slow_reply_ns", [20_000, 2_000_000])
def test_no_response_comes_before_an_announcement(tmp_path: Path, slow_reply_ns: int) -> None:
    trace, _ = job(tmp_path, 5, slow_reply_ns=slow_reply_ns, pings_every=100)
    by_collective = announcements(trace).groupby("seq")
    assert (by_collective["end_ns"].min() >= by_collective["begin_ns"].max()).all()
    assert all(row["violation_us"] == 0 for row in trace.meta["clock"].values())


def test_causes_and_effects_bound_what_round_trips_do_not(tmp_path: Path) -> None:
    trace, truth = job(tmp_path, 9, slow_reply_ns=20_000_000, pings_every=100)
    both = announcements(trace).merge(truth, on=["rank", "seq"])
    error = (both["begin_ns"] - both["true_ns"]) - (both["begin_ns"] - both["true_ns"]).iloc[0]
    assert error.abs().quantile(0.95) <= 1_000_000  # a twentieth of a typical round trip


def test_a_clock_that_jumps_is_told_of(tmp_path: Path) -> None:
    def rows(jump_ns: int) -> list[bytes]:
        spans = []
        for seq in range(40):
            at = seq * 100_000_000 + (jump_ns if seq >= 20 else 0)
            spans.append(files.record("NEGOTIATE", at, at + 50_000, name=1, seq=seq))
        return spans

    clocks = [files.clock(seq * 100_000_000, 0) for seq in range(0, 20, 4)]
    trace = merge(
        [
            files.rank_file(tmp_path, 0, rows(0), size=2),
            files.rank_file(tmp_path, 1, [*clocks, *rows(30_000_000)], size=2, host="beta"),
        ]
    )
    assert trace.meta["clock"][1]["violation_us"] > 1_000
    assert any("rank 1" in text and "jumps" in text for text in trace.warnings)


@pytest.mark.parametrize("process_set", [0, 3])
def test_no_collective_ends_before_it_has_begun_everywhere(
    tmp_path: Path, process_set: int
) -> None:
    """Announcements are long before, so only what is done bounds the other rank's clock."""

    def rows(late_ns: int) -> list[bytes]:
        every = []
        for seq in range(1, 40):
            at = seq * 100_000_000 + late_ns
            for number in (process_set, process_set + 1):
                key = {"name": 1, "seq": seq, "bucket": 2 * seq + number - process_set}
                asked = number * PROCESS_SET_UNIT
                every.append(files.record("NEGOTIATE", at - 5_000_000, at, arg=asked, **key))
                every.append(files.record("ALLREDUCE", at, at + 200_000, **key))
        return every

    # 1 ms late by its clock, which round trips of 8 ms cannot tell from the truth.
    clocks = [files.clock(seq * 100_000_000, 0, 8_000_000) for seq in range(0, 40, 4)]
    trace = merge(
        [
            files.rank_file(tmp_path, 0, rows(0), size=2),
            files.rank_file(tmp_path, 1, [*clocks, *rows(1_000_000)], size=2, host="beta"),
        ]
    )
    done = trace.events[trace.events["kind"] == "ALLREDUCE"]
    ends = done.groupby(["bucket"])["end_ns"].min()
    begins = done.groupby(["bucket"])["begin_ns"].max()
    assert (ends - begins).min() >= 0


@pytest.mark.parametrize(
    ("matrix", "bounds", "distance"),
    [
        pytest.param([[1, 0], [0, 1]], [3, 4], [3, 4], id="a corner"),
        pytest.param([[1, 0], [0, 1]], [3, -4], [3, 0], id="an edge"),
        pytest.param([[1, 0], [-1, 0]], [1, 1], None, id="nowhere"),
    ],
)
def test_the_least_distance_is_that_to_the_nearest_corner(
    matrix: list[list[float]], bounds: list[float], distance: list[float] | None
) -> None:
    found = _least_distance(np.array(matrix, float), np.array(bounds, float))
    assert found == pytest.approx(distance)
