import gzip
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from hvdtune.errors import TraceFormatError
from hvdtune.timeline import Trace, load, merge, read, write_chrome
from hvdtune.timeline.writing.write_slices import write_slices
from tests.kit import rank_files as files
from tests.kit.traces import rows

EVENT_COUNT = 23


def assert_same(left: Trace, right: Trace) -> None:
    pd.testing.assert_frame_equal(left.events, right.events)
    assert left.meta == right.meta
    assert left.warnings == right.warnings


def exported(trace: Trace, path: Path) -> dict[str, Any]:
    write_chrome(trace, path)
    document: dict[str, Any] = json.loads(path.read_text())
    return document


def overlapping_without_nesting(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    rows = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            rows[event["pid"], event["tid"]].append(event)
    bad = []
    for row in rows.values():
        open_ends: list[int] = []
        for event in sorted(row, key=lambda event: (event["ts"], -event["dur"])):
            begin = round(event["ts"] * 1000)
            end = begin + round(event["dur"] * 1000)
            while open_ends and open_ends[-1] <= begin:
                open_ends.pop()
            if open_ends and end > open_ends[-1]:
                bad.append(event)
            open_ends.append(end)
    return bad


@pytest.fixture
def trace() -> Trace:
    return read(files.GOLDEN / "rank-0.hvt")


def test_the_export_is_that_of_the_golden_file(trace: Trace, tmp_path: Path) -> None:
    write_chrome(trace, tmp_path / "trace.json")
    golden = (files.GOLDEN / "trace.json").read_text()
    assert (tmp_path / "trace.json").read_text() == golden


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_what_was_exported_reads_back_unchanged(trace: Trace, tmp_path: Path, name: str) -> None:
    write_chrome(trace, tmp_path / name)
    assert_same(trace, read(tmp_path / name))


def test_the_document_is_well_formed_and_shows_every_event(trace: Trace, tmp_path: Path) -> None:
    document = exported(trace, tmp_path / "trace.json")
    shown = [event for event in document["traceEvents"] if event["ph"] != "M"]
    assert document["displayTimeUnit"] == "ms"
    assert len(shown) == document["otherData"]["events"] == EVENT_COUNT
    assert {event["ph"] for event in shown} == {"X", "i", "C"}
    for event in shown:
        assert isinstance(event["ts"], float)
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        assert event["ph"] != "X" or event["dur"] >= 0
    assert overlapping_without_nesting(shown) == []


def test_negotiations_say_their_operation_and_who_was_late(trace: Trace, tmp_path: Path) -> None:
    events = exported(trace, tmp_path / "trace.json")["traceEvents"]
    first, second = (event for event in events if event["name"] == "NEGOTIATE_ALLREDUCE")
    assert first["args"] == {"seq": 0, "bucket": 0, "cached": 1, "last_rank": 0, "late_us": 15.0}
    assert second["args"] == {"seq": 1, "bucket": 0, "cached": 0}


def test_rows_are_titled_and_the_same_on_every_rank(tmp_path: Path) -> None:
    queue = [files.record("QUEUE", 10, 20, name=2)]
    both = [files.record("QUEUE", 10, 20, name=1), *queue]
    paths = [files.rank_file(tmp_path, 0, both), files.rank_file(tmp_path, 1, queue)]
    events = exported(merge(paths), tmp_path / "trace.json")["traceEvents"]
    assert all(e["tid"] > 0 for e in events if e["ph"] == "X")
    titles = {(e["name"], e["pid"], e["tid"]): e["args"] for e in events if e["ph"] == "M"}
    assert titles["process_name", 0, 0] == {"name": "rank 0 (alpha)"}
    assert titles["thread_name", 0, 16] == {"name": "t1"}
    assert titles["thread_name", 0, 17] == titles["thread_name", 1, 17] == {"name": "t2"}
    assert ("thread_name", 1, 16) not in titles


def test_spans_that_overlap_without_nesting_get_a_further_row(tmp_path: Path) -> None:
    items = [
        files.record("BUCKET", 100, 200, bucket=1),
        files.record("PACK", 100, 150, bucket=1),
        files.record("BUCKET", 150, 250, bucket=2),
        files.record("NEGOTIATE", 10, 40, name=1),
        files.record("NEGOTIATE", 20, 60, name=1, seq=1),
        files.record("QUEUE", 60, 60, name=1),
    ]
    trace = merge([files.rank_file(tmp_path, 0, items)])
    events = exported(trace, tmp_path / "trace.json")["traceEvents"]
    assert overlapping_without_nesting(events) == []
    titles = {e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert titles == {"communication", "communication (2)", "t1", "t1 (2)"}
    assert_same(trace, read(tmp_path / "trace.json"))


def recorded(folder: Path, text: str, kind: str | int, **metadata: str) -> Path:
    """A file of one rank with a slice and a setting of such a name in a step."""
    items = [files.record(kind, 10, 15, name=1), files.record("KNOB_ADOPTED", 50, name=1, arg=3)]
    return files.write(
        folder / "rank-0.hvt",
        files.header(),
        files.metadata(**metadata),
        files.names({1: text}),
        files.records([*items, files.record("STEP", 0, 300, seq=7)]),
        files.end(),
    )


@pytest.mark.parametrize(
    "name",
    [
        *('"}]}', "</script>", "%s %d", "\x00\x1f\u2028", "\\", "rank 0", "\U0001f600"),
        pytest.param("x" * 5000, id="a long one"),
    ],
)
def test_names_are_text_whatever_is_in_them(tmp_path: Path, name: str) -> None:
    trace = merge([recorded(tmp_path, name, "QUEUE", host='"host"')])
    document = exported(trace, tmp_path / "trace.json")
    titles = [e["args"]["name"] for e in document["traceEvents"] if e["name"] == "thread_name"]
    assert name in titles
    assert_same(trace, read(tmp_path / "trace.json"))


@pytest.mark.parametrize(
    ("what", "shown"),
    [
        *((text, text) for text in ("input", "100 %s", '"\\', "cycle")),
        *((text, text) for text in ("NEGOTIATE_ALLREDUCE", "process_name")),
        # These names mean something else, or nothing.
        *((text, "SPAN") for text in ("STEP", "BLOCKED", "SPAN", "")),
    ],
)
def test_spans_are_called_what_the_script_said_and_read_back_as_spans(
    tmp_path: Path, what: str, shown: str
) -> None:
    path = recorded(tmp_path, what, 21)
    trace = merge([path])
    events = exported(trace, tmp_path / "trace.json")["traceEvents"]
    spans = [(e["args"]["what"], e["name"]) for e in events if "what" in e.get("args", {})]
    assert spans == [(what, shown)]
    assert_same(trace, read(tmp_path / "trace.json"))
    write_slices(load(path), tmp_path / "slices.json", "perfetto")
    for export in ("trace.json", "slices.json"):
        assert rows(load(path)) == rows(load(tmp_path / export))


def test_spans_of_older_exports_are_spans(trace: Trace, tmp_path: Path) -> None:
    document = exported(trace, tmp_path / "trace.json")
    old = {"ph": "X", "cat": "script", "name": "SPAN", "pid": 0, "tid": 4, "ts": 1.0, "dur": 1.0}
    document["traceEvents"].append(old | {"args": {"what": "input"}})
    (tmp_path / "old.json").write_text(json.dumps(document))
    events = read(tmp_path / "old.json").events
    assert events.loc[events["kind"] == "SPAN", "name"].tolist() == ["input"]


def test_no_string_ends_in_a_backslash_which_perfetto_misreads(
    trace: Trace, tmp_path: Path
) -> None:
    write_chrome(trace, tmp_path / "trace.json")
    assert "\\\\" not in (tmp_path / "trace.json").read_text()


BIG = 2**32 - 1


@pytest.mark.parametrize(
    "items",
    [
        pytest.param(
            [
                files.record("STEP", 0, 1),
                files.record(
                    "ALLREDUCE", 10**14 + 1, 10**15 + 1, name=1, seq=BIG, bucket=BIG, arg=BIG
                ),
                files.record("CYCLE", 7, seq=BIG, bucket=BIG, arg=BIG),
                files.clock(8, -(2**62) + 3, 2**40 + 1),
                files.record(22, 200, 205),
            ],
            id="large values",
        ),
        pytest.param([], id="nothing"),
    ],
)
def test_what_was_recorded_is_exported_and_read_back_unchanged(
    tmp_path: Path, items: list[bytes]
) -> None:
    trace = merge([files.rank_file(tmp_path, 5, items)])
    write_chrome(trace, tmp_path / "trace.json")
    assert_same(trace, read(tmp_path / "trace.json"))


def test_nothing_is_left_beside_the_export(trace: Trace, tmp_path: Path) -> None:
    write_chrome(trace, tmp_path / "trace.json.gz")
    assert [path.name for path in tmp_path.iterdir()] == ["trace.json.gz"]


def test_compressed_exports_are_reproducible(trace: Trace, tmp_path: Path) -> None:
    for name in ("a.json.gz", "b.json.gz"):
        write_chrome(trace, tmp_path / name)
    assert (tmp_path / "a.json.gz").read_bytes() == (tmp_path / "b.json.gz").read_bytes()


def test_an_export_cut_anywhere_gives_its_whole_lines(trace: Trace, tmp_path: Path) -> None:
    write_chrome(trace, tmp_path / "trace.json")
    whole = (tmp_path / "trace.json").read_bytes()
    events_begin = whole.index(b'{"ph":"X"')
    for cut in range(events_begin, len(whole), 37):
        read_back = read(files.write(tmp_path / "cut.json", whole[:cut]))
        assert len(read_back.events) <= EVENT_COUNT
        if len(read_back.events) < EVENT_COUNT:
            assert f"of {EVENT_COUNT} written events could be read" in read_back.warnings[-1]


def test_a_damaged_line_is_left_out_and_its_offset_said(trace: Trace, tmp_path: Path) -> None:
    write_chrome(trace, tmp_path / "trace.json")
    text = (tmp_path / "trace.json").read_bytes()
    damaged = text.replace(b'"name":"BUCKET","pid":0', b'"name":"BUCKET","pid":[')
    read_back = read(files.write(tmp_path / "damaged.json", damaged))
    assert len(read_back.events) == EVENT_COUNT - 1
    at = damaged.rindex(b"\n", 0, damaged.index(b'"BUCKET"')) + 1
    assert f"the event at byte {at} is damaged" in read_back.warnings[-3]
    count = f"{EVENT_COUNT - 1} of {EVENT_COUNT} written events could be read"
    assert count in read_back.warnings[-1]


def test_a_compressed_export_cut_short_gives_what_is_there(tmp_path: Path) -> None:
    items = [files.record("STEP", 10 * k, 10 * k + k % 7, seq=k) for k in range(20_000)]
    trace = merge([files.rank_file(tmp_path, 0, items)])
    write_chrome(trace, tmp_path / "trace.json.gz")
    packed = (tmp_path / "trace.json.gz").read_bytes()
    read_back = read(files.write(tmp_path / "cut.json.gz", packed[: len(packed) // 2]))
    assert 1_000 < len(read_back.events) < 20_000
    assert any("cut off at byte" in text for text in read_back.warnings)


@pytest.mark.parametrize(
    "content",
    [
        b"{}",
        b"\x1f\x8bnonsense",
        b'{"displayTimeUnit":"ms"',
        gzip.compress(b"hello", mtime=0),
        b"\x00" * 1000,
    ],
)
def test_other_files_are_one_line_of_error(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(TraceFormatError) as caught:
        read(files.write(tmp_path / "other.json", content))
    assert "other.json" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "content",
    [
        b"[]",
        b'{"traceEvents":[]}',
        b'{"displayTimeUnit":"ms","otherData":{},\n"traceEvents":[\n]}',
    ],
)
def test_a_trace_without_events_is_one(tmp_path: Path, content: bytes) -> None:
    assert read(files.write(tmp_path / "other.json", content)).events.empty


@pytest.mark.parametrize("ts", ["1e300", "-1e300", '"one"', "null", "9" * 400])
def test_times_out_of_range_are_damage(trace: Trace, tmp_path: Path, ts: str) -> None:
    write_chrome(trace, tmp_path / "trace.json")
    text = (tmp_path / "trace.json").read_bytes().replace(b'"ts":3.001', b'"ts":' + ts.encode())
    read_back = read(files.write(tmp_path / "bad.json", text))
    assert len(read_back.events) == EVENT_COUNT - 1
