"""What tools made for Horovod's timeline find in ours."""

import gzip
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hvdtune.timeline import load, merge
from hvdtune.timeline.model.trace import Trace
from hvdtune.timeline.writing.export_horovod import left_out, write_horovod
from tests.kit import rank_files as files
from tests.kit.traces import HOROVOD

Events = list[dict[str, Any]]
US = 1000


def announce(seq: int, begin: int, end: int, name: int = 1) -> bytes:
    where = {"name": name, "seq": seq, "bucket": seq + 1}
    return files.record("NEGOTIATE", begin * US, end * US, **where, arg=1)


def operation(seq: int, at: int, name: int = 1) -> Iterator[bytes]:
    """Answered at `at`: queued 10 us, copied in 5, travels 20, copied out 5."""
    where = {"name": name, "seq": seq, "bucket": seq + 1}
    yield files.record("QUEUE", at * US, (at + 10) * US, **where)
    yield files.record("ALLREDUCE", (at + 10) * US, (at + 40) * US, **where, arg=48)
    if name == 1:
        for kind, begin, end in (("PACK", 10, 15), ("EXCHANGE", 15, 35), ("UNPACK", 35, 40)):
            yield files.record(kind, (at + begin) * US, (at + end) * US, bucket=seq + 1)


def two_ranks(folder: Path) -> Trace:
    text = b"float32[2,3]"
    shapes = files.block(files.DETAILS, struct.pack("<II", 1, len(text)) + text)
    own = [
        announce(0, 100, 150),
        *operation(0, 150),
        files.record("CYCLE", 150 * US, seq=1, arg=2),
        announce(0, 101, 150, name=2),
        *operation(0, 150, name=2),
        announce(1, 200, 260),
        *operation(1, 260),
    ]
    first = files.rank_file(folder, 0, own, size=2, unix_ns=10**18, monotonic_ns=0)
    first.write_bytes(first.read_bytes() + shapes)
    # Done with the first before rank 0 is: it announces the next while rank 0's still ends.
    other = [announce(0, 140, 150), announce(0, 130, 150, name=2), announce(1, 185, 260)]
    return merge([first, files.rank_file(folder, 1, other, size=2)])


def written(folder: Path, **how: Any) -> Events:
    write_horovod(two_ranks(folder), folder / "timeline.json", **how)
    return json.loads((folder / "timeline.json").read_text())


def tensors(events: Events) -> dict[int, str]:
    return {
        event["pid"]: event["args"]["name"]
        for event in events
        if event["ph"] == "M" and event["name"] == "process_name" and event["pid"] > 0
    }


def slices(events: Events, pid: int) -> list[tuple[str, int, int, int]]:
    """(name, depth, begin, end) in the order of their begins; fails where B and E do not match."""
    found: list[tuple[str, int, int, int]] = []
    open_: list[tuple[str, int]] = []
    for event in events:
        if event.get("pid") == pid and event["ph"] == "B":
            open_.append((event["name"], event["ts"]))
        elif event.get("pid") == pid and event["ph"] == "E":
            name, begin = open_.pop()
            found.append((name, len(open_), begin, event["ts"]))
    assert open_ == []
    return sorted(found, key=lambda one: (one[2], one[1]))


def test_an_operation_has_horovods_phases(tmp_path: Path) -> None:
    events = written(tmp_path)
    assert tensors(events) == {1: "t1", 2: "t2"}
    assert slices(events, 1)[:6] == [
        ("NEGOTIATE_ALLREDUCE", 0, 0, 50),
        ("ALLREDUCE", 0, 50, 90),
        ("QUEUE", 1, 50, 60),
        ("MEMCPY_IN_FUSION_BUFFER", 1, 60, 65),
        ("GLOO_ALLREDUCE", 1, 65, 85),
        ("MEMCPY_OUT_FUSION_BUFFER", 1, 85, 90),
    ]


@pytest.mark.parametrize(
    ("pid", "ticks"),
    [(1, [("0", 0), ("1", 40), ("1", 90), ("0", 100)]), (2, [("0", 1), ("1", 30)])],
)
def test_every_rank_ticks_when_it_was_ready_cache_or_not(
    tmp_path: Path, pid: int, ticks: list[tuple[str, int]]
) -> None:
    found = [e for e in written(tmp_path) if e["ph"] == "X" and e["pid"] == pid]
    assert [(event["name"], event["ts"]) for event in found] == ticks
    assert {event["dur"] for event in found} == {0}


def test_what_is_announced_early_waits_for_the_tensors_row(tmp_path: Path) -> None:
    found = slices(written(tmp_path), 1)
    assert found[6][:3] == ("NEGOTIATE_ALLREDUCE", 0, 90)
    assert [name for name, depth, *_ in found if depth == 0] == 2 * [
        "NEGOTIATE_ALLREDUCE",
        "ALLREDUCE",
    ]


def test_the_end_says_dtype_and_shape(tmp_path: Path) -> None:
    ends = [event for event in written(tmp_path) if event["ph"] == "E" and "args" in event]
    assert [(end["pid"], end["args"]) for end in ends] == 2 * [
        (1, {"dtype": "float32", "shape": "[2, 3]"})
    ]


def test_the_head_says_when_time_began(tmp_path: Path) -> None:
    events = written(tmp_path)
    since = next(event for event in events if event["ph"] == "M" and event["pid"] == 0)
    assert since["args"]["start_time_since_epoch_in_micros"] == 10**15 + 100


@pytest.mark.parametrize(
    ("wanted", "marks"), [(True, [(50, "g")]), (False, [])], ids=["wanted", "not wanted"]
)
def test_cycles_are_marked_when_that_is_wanted(
    tmp_path: Path, wanted: bool, marks: list[tuple[int, str]]
) -> None:
    events = written(tmp_path, mark_cycles=wanted)
    cycles = [event for event in events if event.get("name") == "CYCLE_START"]
    assert [(event["ts"], event["s"]) for event in cycles] == marks


def test_times_never_go_back(tmp_path: Path) -> None:
    times = [event["ts"] for event in written(tmp_path, mark_cycles=True) if "ts" in event]
    assert times == sorted(times)


def test_names_that_are_no_json_are_escaped(tmp_path: Path) -> None:
    name = 'say "hi"\n\\ %d </script>'
    parts = files.header(), files.metadata(), files.names({1: name})
    path = files.write(
        tmp_path / "rank-0.hvt", *parts, files.records([announce(0, 1, 2), *operation(0, 2)])
    )
    write_horovod(merge([path]), tmp_path / "timeline.json.gz")
    events = json.loads(gzip.decompress((tmp_path / "timeline.json.gz").read_bytes()))
    assert tensors(events) == {1: name}


def test_a_trace_without_events_is_an_array(tmp_path: Path) -> None:
    write_horovod(merge([files.rank_file(tmp_path, 0, [])]), tmp_path / "timeline.json")
    assert {event["ph"] for event in json.loads((tmp_path / "timeline.json").read_text())} == {"M"}


@pytest.mark.parametrize("mark_cycles", [False, True])
def test_what_is_written_and_what_is_left_out_is_counted(tmp_path, mark_cycles):
    trace, path = two_ranks(tmp_path), tmp_path / "timeline.json"
    written = write_horovod(trace, path, mark_cycles=mark_cycles)
    assert written.slices == load(path).slice_count
    assert left_out(trace, written) == ({} if mark_cycles else {"CYCLE": 1})


def test_an_announcement_of_what_the_first_rank_never_announced_is_left_out(tmp_path):
    rank_0 = files.rank_file(tmp_path, 0, [announce(0, 100, 150)], size=2)
    rank_1 = files.rank_file(tmp_path, 1, [announce(0, 90, 150), announce(1, 160, 170)], size=2)
    trace = merge([rank_0, rank_1])
    written = write_horovod(trace, tmp_path / "timeline.json")
    assert (written.ticks, left_out(trace, written)["NEGOTIATE"]) == (2, 1)


def test_ticks_of_a_timeline_of_horovods_stay(tmp_path):
    source = load(HOROVOD / "horovod_resnet50_np2_sigkill.json.gz")
    written = write_horovod(source, tmp_path / "timeline.json")
    again = load(tmp_path / "timeline.json")
    assert written.slices == again.slice_count
    for rank in (0, 1):
        ticks = [
            trace.slices[(trace.slices["kind"] == "READY") & (trace.slices["rank"] == rank)]
            for trace in (source, again)
        ]
        first, second = (set(zip(t["tensor"], t["seq"], strict=True)) for t in ticks)
        assert first and first <= second
    assert "READY" not in left_out(source, written)
