from pathlib import Path

import numpy as np
import pytest

from hvdtune.errors import TraceFormatError
from hvdtune.timeline import merge
from hvdtune.timeline.reading.clock import fit_clock
from tests.kit import rank_files as files

STEP = files.record("STEP", 1_000_000, 2_000_000)


def test_ranks_are_put_on_the_clock_of_rank_0(tmp_path: Path) -> None:
    # Rank 1's clock shows 700 ns less, and 10 ppm too few, than rank 0's.
    local = np.arange(20) * 1_000_000_000
    remote = 700 + local + local // 100_000
    clocks = [files.clock(int(at), int(to - at)) for at, to in zip(local, remote, strict=True)]
    steps = [files.record("STEP", int(at), int(at) + 10, seq=k) for k, at in enumerate(local)]
    expected = [files.record("STEP", int(at), int(at) + 10, seq=k) for k, at in enumerate(remote)]
    trace = merge(
        [
            files.rank_file(tmp_path, 0, expected, size=2),
            files.rank_file(tmp_path, 1, [*clocks, *steps], size=2, host="beta"),
        ]
    )
    steps_of = trace.events[trace.events["kind"] == "STEP"].pivot(
        index="seq", columns="rank", values="begin_ns"
    )
    assert (steps_of[0] - steps_of[1]).abs().max() <= 1
    assert trace.meta["clock"][1]["drift_ppm"] == pytest.approx(10)
    assert trace.meta["clock"][1]["residual_us"] < 0.001
    assert trace.warnings == []


def test_time_starts_with_the_first_event_of_any_rank(tmp_path: Path) -> None:
    trace = merge(
        [
            files.rank_file(tmp_path, 0, [STEP], size=2, unix_ns=10**18, monotonic_ns=0),
            files.rank_file(tmp_path, 1, [files.record("STEP", 400_000, 500_000)], size=2),
        ]
    )
    assert trace.events["begin_ns"].tolist() == [0, 600_000]
    assert trace.events["rank"].tolist() == [1, 0]
    assert trace.meta["origin_ns"] == 400_000
    assert trace.meta["origin_unix_ns"] == 10**18 + 400_000


def test_columns_have_the_documented_types(tmp_path: Path) -> None:
    events = merge([files.rank_file(tmp_path, 0, [STEP])]).events
    assert {name: str(kind) for name, kind in events.dtypes.items()} == {
        "rank": "int32",
        "kind": "category",
        "name": "category",
        **dict.fromkeys(("begin_ns", "end_ns", "seq", "bucket", "arg"), "int64"),
    }


def test_an_unmeasured_rank_of_another_host_is_aligned_by_time_of_day(tmp_path: Path) -> None:
    items = [files.record("STEP", 1_000, 2_000)]
    first = files.rank_file(tmp_path, 0, [STEP], size=2, unix_ns=5_000_000, monotonic_ns=0)
    other = files.rank_file(
        tmp_path, 1, items, size=2, host="beta", unix_ns=5_000_000, monotonic_ns=-999_500
    )
    trace = merge([first, other])
    assert trace.events["begin_ns"].tolist() == [0, 500]
    assert "aligned by time of day" in trace.warnings[0]


def test_processes_of_one_host_share_its_clock(tmp_path: Path) -> None:
    noisy = [files.clock(10_000, 300, round_trip=1000), STEP]
    trace = merge(
        [
            files.rank_file(tmp_path, 0, [STEP], size=2),
            files.rank_file(tmp_path, 1, noisy, size=2),
        ]
    )
    steps = trace.events[trace.events["kind"] == "STEP"]
    assert steps["begin_ns"].nunique() == 1


def test_drops_missing_ranks_and_unreadable_files_are_said(tmp_path: Path) -> None:
    path = files.write(
        tmp_path / "a.hvt", files.header(), files.metadata(0, size=4), files.end(dropped=5)
    )
    bad = files.write(tmp_path / "bad.hvt", b"what")
    trace = merge([path, bad])
    assert trace.meta["dropped"] == {0: 5}
    assert [text.removeprefix(str(tmp_path)) for text in trace.warnings] == [
        "/bad.hvt: not a timeline of hvdtune",
        "rank 0 dropped 5 records: its buffer was full",
        "no timeline of rank 1, 2, 3",
    ]
    assert len(trace.events) == 0


def test_records_of_later_versions_are_counted(tmp_path: Path) -> None:
    trace = merge([files.rank_file(tmp_path, 0, [STEP, files.record(99, 5)])])
    assert len(trace.events) == 1
    assert "1 records of unknown kind" in trace.warnings[0]


def test_a_lost_name_is_stood_for_by_its_number(tmp_path: Path) -> None:
    trace = merge([files.rank_file(tmp_path, 0, [files.record("QUEUE", 1, 2, name=77)])])
    assert trace.events["name"].tolist() == ["#77"]
    assert "1 names are lost" in trace.warnings[0]


def test_two_files_of_one_rank_are_refused(tmp_path: Path) -> None:
    path = files.rank_file(tmp_path, 0, [STEP])
    with pytest.raises(TraceFormatError, match="both of rank 0"):
        merge([path, path])


def test_nothing_readable_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TraceFormatError, match="not a timeline"):
        merge([files.write(tmp_path / "bad.hvt", b"what")])
    with pytest.raises(TraceFormatError, match="no timeline"):
        merge([])


def test_long_round_trips_hardly_move_the_clock() -> None:
    generator = np.random.default_rng(7)
    at = np.arange(50, dtype=np.int64) * 100_000_000
    delay = np.where(np.arange(50) % 3 == 0, generator.integers(100_000, 5_000_000, 50), 0)
    fit = fit_clock(at, 1_000 + delay // 2, 8_000 + delay)
    assert fit.to_rank_0(np.array([0]))[0] == pytest.approx(1_000, abs=100)
    assert fit.round_trip_us == 8


def test_short_or_absurd_measurements_give_no_drift() -> None:
    at = np.arange(10, dtype=np.int64)
    round_trip = np.full(10, 1_000)
    assert fit_clock(at * 1_000, at * 50, round_trip).drift_ppm == 0
    assert fit_clock(at * 1_000_000_000, at * 10_000_000, round_trip).drift_ppm == 0
