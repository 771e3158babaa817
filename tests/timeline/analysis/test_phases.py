from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvdtune.timeline import Trace, merge, phase_table, step_table, summary, tensor_table
from hvdtune.timeline.model.intervals import covered_ns, covered_within, union
from tests.kit import rank_files as files
from tests.kit.synthetic import Recorder

MS = 1_000_000


Spans = list[tuple[int, int]]


def columns_of(spans: Spans) -> tuple[np.ndarray, np.ndarray]:
    begin, end = np.array(spans, np.int64).reshape(-1, 2).T
    return begin, end


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    # Two tensors share a bucket of 4 ms in each of two steps of 10 ms.
    ranks = []
    for rank in (0, 1):
        items = []
        for step in (0, 1):
            at = step * 10 * MS
            items += [files.record("STEP", at, at + 10 * MS, seq=step)]
            items += [files.record("BUCKET", at + 2 * MS, at + 6 * MS, seq=2, arg=300)]
            for tensor, size in ((1, 100), (2, 200)):
                seq = 2 * step + tensor
                row = {"name": tensor, "seq": seq}
                items += [
                    files.record("NEGOTIATE", at, at + 2 * MS, **row),
                    files.record("LATE", at, at + tensor * MS, arg=tensor - 1, **row),
                    files.record("ALLREDUCE", at + 2 * MS, at + 6 * MS, arg=size, **row),
                ]
        ranks.append(files.rank_file(tmp_path, rank, items, size=2))
    return merge(ranks)


@pytest.mark.parametrize("count", [1, 100, 127, 128, 200, 300])
def test_any_number_of_tensors_has_a_row_each(count: int) -> None:
    record = Recorder()
    for number in range(count):
        for rank in (0, 1):
            name, at = f"layer{number}", float(number)
            record.add(rank, "SPAN", at, at + 0.1, f"span{number}")
            record.add(rank, "NEGOTIATE", at + 0.1 * rank, at + 0.2, name)
            record.add(rank, "ALLREDUCE", at + 0.2, at + 0.4, name, arg=8)
    table = tensor_table(record.trace(2)).set_index("tensor")
    assert sorted(table.index) == sorted(f"layer{number}" for number in range(count))
    assert (table["last_rank"] == 1).all()
    assert table["communicate_p50_us"].to_numpy() == pytest.approx(200.0)


def test_each_tensor_has_its_times_and_its_last_rank(trace: Trace) -> None:
    table = tensor_table(trace).set_index("tensor")
    assert table.loc["t2"].drop(["queue_p50_us", "queue_p95_us"]).to_dict() == {
        "operation": "ALLREDUCE",
        "bytes": 200,
        "count": 2,
        "negotiate_p50_us": 2000.0,
        "negotiate_p95_us": 2000.0,
        "communicate_p50_us": 4000.0,
        "communicate_p95_us": 4000.0,
        "last_rank": 1,
        "last_rank_percent": 100.0,
        "late_p95_us": 2000.0,
        "late_ms": 4.0,
        "done_p50_us": 6000.0,
        "done_p95_us": 6000.0,
        "bucket_bytes": 300.0,
        "dtype": "",
    }
    assert table.loc["t1", "last_rank"] == 0


@pytest.mark.parametrize(
    ("rank", "phase", "busy_ms", "percent"), [(0, "communicate", 8, 40), (1, "negotiate", 4, 20)]
)
def test_tensors_of_one_bucket_do_not_count_its_time_twice(
    trace: Trace, rank: int, phase: str, busy_ms: float, percent: float
) -> None:
    row = phase_table(trace).set_index(["rank", "phase"]).loc[(rank, phase)]
    assert (row["busy_ms"], row["percent"]) == (busy_ms, percent)


def test_communication_is_clipped_to_steps(tmp_path: Path) -> None:
    items = [
        files.record("STEP", 0, 10 * MS),
        files.record("BUCKET", 8 * MS, 14 * MS),
        files.record("STEP", 12 * MS, 20 * MS, seq=1),
    ]
    table = step_table(merge([files.rank_file(tmp_path, 0, items)]))
    assert table["communicate_ms"].tolist() == [2, 2]


def test_the_summary_gives_steps_with_their_spread(trace: Trace) -> None:
    numbers = summary(trace)
    assert (numbers["ranks"], numbers["steps"], numbers["step_ms_p50"]) == (2, 2, 10)
    assert numbers["communicate_percent"] == pytest.approx(40)
    assert numbers["dropped"] == 0


def test_tables_of_an_empty_trace_are_empty(tmp_path: Path) -> None:
    trace = merge([files.rank_file(tmp_path, 0, [])])
    assert len(tensor_table(trace)) == len(phase_table(trace)) == len(step_table(trace)) == 0
    assert summary(trace)["steps"] == 0


@pytest.mark.parametrize(
    ("spans", "joined"),
    [
        pytest.param([(5, 6), (0, 4), (10, 12), (1, 5)], [(0, 6), (10, 12)], id="touch"),
        pytest.param([(0, 4), (0, 4), (3, 5)], [(0, 5)], id="overlap"),
        pytest.param([], [], id="none"),
    ],
)
def test_a_union_joins_what_overlaps_or_touches(spans: Spans, joined: Spans) -> None:
    begin, end = columns_of(spans)
    assert list(zip(*(column.tolist() for column in union(begin, end)), strict=True)) == joined
    assert covered_ns(begin, end) == sum(last - first for first, last in joined)


SPANS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)).map(lambda s: (s[0], sum(s))))


@given(SPANS, SPANS)
def test_windows_count_only_what_lies_in_them(spans: Spans, windows: Spans) -> None:
    busy = {time for begin, end in spans for time in range(begin, end)}
    expected = [len(busy.intersection(range(begin, end))) for begin, end in windows]
    assert covered_within(*columns_of(spans), *columns_of(windows)).tolist() == expected
