import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from hvdtune.errors import TraceFormatError
from hvdtune.timeline import merge
from hvdtune.timeline.model.schema import KINDS, RECORD
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
        "/bad.hvt: not an hvdtune timeline",
        "rank 0 dropped 5 records: its buffer was full",
        "no timeline of rank 1, 2, 3",
    ]
    assert len(trace.events) == 0


@pytest.mark.parametrize(
    ("item", "names", "said"),
    [
        pytest.param(files.record(99, 5), [""], "1 record of unknown kind", id="later versions"),
        pytest.param(files.record("QUEUE", 1, 2, name=77), ["#77", ""], "1 name lost", id="lost"),
    ],
)
def test_what_is_not_known_is_told_of(
    tmp_path: Path, item: bytes, names: list[str], said: str
) -> None:
    trace = merge([files.rank_file(tmp_path, 0, [STEP, item])])
    assert trace.events["name"].tolist() == names
    assert said in trace.warnings[0]


@pytest.mark.parametrize(
    ("names", "said"),
    [
        pytest.param(["rank-0.hvt"] * 2, "both belong to rank 0", id="two files of one rank"),
        pytest.param(["bad.hvt"], "not an hvdtune timeline", id="nothing readable"),
        pytest.param([], "no timeline", id="nothing"),
    ],
)
def test_what_cannot_be_merged_is_an_error(tmp_path: Path, names: list[str], said: str) -> None:
    files.rank_file(tmp_path, 0, [STEP])
    files.write(tmp_path / "bad.hvt", b"what")
    with pytest.raises(TraceFormatError, match=said):
        merge([tmp_path / name for name in names])


def test_long_round_trips_hardly_move_the_clock() -> None:
    generator = np.random.default_rng(7)
    at = np.arange(50, dtype=np.int64) * 100_000_000
    delay = np.where(np.arange(50) % 3 == 0, generator.integers(100_000, 5_000_000, 50), 0)
    fit = fit_clock(at, 1_000 + delay // 2, 8_000 + delay)
    assert fit.to_rank_0(np.array([0]))[0] == pytest.approx(1_000, abs=100)
    assert fit.round_trip_us == 8


@pytest.mark.parametrize(
    ("every_ns", "drift_ns"),
    [
        pytest.param(1_000, 50, id="short"),
        pytest.param(1_000_000_000, 10_000_000, id="absurd"),
    ],
)
def test_short_or_absurd_measurements_give_no_drift(every_ns: int, drift_ns: int) -> None:
    at = np.arange(10, dtype=np.int64)
    assert fit_clock(at * every_ns, at * drift_ns, np.full(10, 1_000)).drift_ppm == 0


def test_merging_takes_little_more_memory_than_the_files(tmp_path: Path) -> None:
    rows = np.zeros(60_000, RECORD)
    rows["begin_ns"] = np.arange(len(rows)) * 1000
    rows["duration_and_kind"] = KINDS["NEGOTIATE"].code << 48 | 900
    rows["name"], rows["seq"] = 1, np.arange(len(rows))
    hosts = {"size": 4, "unix_ns": 10**18, "monotonic_ns": 0}
    paths = [
        files.rank_file(tmp_path, rank, [rows.tobytes()], host=f"node{rank}", **hosts)
        for rank in range(4)
    ]
    tracemalloc.start()
    merge(paths)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5 * len(paths) * rows.nbytes
