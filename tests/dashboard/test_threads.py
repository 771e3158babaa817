import gzip
import json
import re
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from hvdtune.dashboard.data import open_run
from hvdtune.dashboard.lanes import MAX_DEPTH, MAX_THREADS
from hvdtune.dashboard.pages import overview
from hvdtune.dashboard.shell import PageAddress
from hvdtune.dashboard.tiles import TileWindow
from hvdtune.plural import counted

from .decode import decode
from .synthetic import HOSTILE

KINETO = Path(__file__).parents[1] / "timeline" / "data" / "kineto"

PLACE = PageAddress(0, {})


def _slice(name, at_us, lasts_us, tid="7", pid="1", **more):
    return {"ph": "X", "name": name, "ts": at_us, "dur": lasts_us, "pid": pid, "tid": tid, **more}


def _title(pid, name, tid=None):
    kind = "process_name" if tid is None else "thread_name"
    more = {} if tid is None else {"tid": tid}
    return {"ph": "M", "name": kind, "pid": pid, "args": {"name": name}, **more}


@pytest.fixture
def opened(tmp_path):
    def write(*events):
        path = tmp_path / "trace.json.gz"
        path.write_bytes(gzip.compress(json.dumps({"traceEvents": events}).encode()))
        return open_run(path)

    return write


def tile_of(run, pixels=400, **more):
    lanes = run.swimlane
    return decode(lanes.tile(TileWindow.of(0, lanes.last_ns, pixels), **more))


def test_every_slice_of_another_program_is_drawn_once_in_the_lane_of_its_thread(opened):
    events = [_slice(f"op {n % 3}", 10 * n, 8, tid=str(n % 2)) for n in range(40)]
    run = opened(*events)
    tile = tile_of(run)
    drawn = Counter((tile["names"][code], tile["labels"][lane][1]) for code, lane in zip(
        tile["name"], tile["lane"], strict=True
    ))  # fmt: skip
    assert drawn == Counter((each["name"], f"tid {each['tid']}") for each in events)
    assert (tile["row"] < -1).all()
    assert len(set(tile["row"].tolist())) == 40


def test_a_call_stack_is_drawn_as_deep_as_it_is_and_callers_are_above(opened):
    depth = MAX_DEPTH + 2
    run = opened(*(_slice(f"call {n}", n, 1000 - 2 * n) for n in range(depth)))
    tile = tile_of(run)
    assert tile["labels"] == [[0, "tid 7", MAX_DEPTH]]
    by_name = {tile["names"][c]: d for c, d in zip(tile["name"], tile["depth"], strict=True)}
    assert [by_name[f"call {n}"] for n in range(MAX_DEPTH)] == list(range(MAX_DEPTH))
    assert by_name[f"call {depth - 1}"] == MAX_DEPTH - 1


@pytest.mark.parametrize(
    ("events", "labels"),
    [
        pytest.param(
            [_slice("op", 10 * n, 10) for n in range(5)], ["tid 7"], id="slices that follow others"
        ),
        pytest.param([
            _title("1", "python"), _title("2", "GPU 0"), _title("1", "main", "7"),
            _title("2", "main", "7"), _title("2", "stream 9", "9"),
            _slice("a", 0, 5), _slice("b", 1, 5, pid="2"), _slice("c", 2, 5, pid="2", tid="9"),
        ], ["python main", "GPU 0 main", "stream 9"], id="threads of one name"),
        pytest.param([
            _title("1", "python"), _title("1", "pool", "7"), _title("1", "pool", "8"),
            _slice("a", 0, 50), _slice("b", 1, 50, tid="8"),
        ], ["python pool 7", "python pool 8"], id="threads of equal titles"),
    ],
)  # fmt: skip
def test_each_thread_has_a_lane_of_one_row(opened, events, labels):
    assert tile_of(opened(*events))["labels"] == [[0, label, 1] for label in labels]


def test_the_idlest_of_very_many_threads_share_a_lane(opened):
    threads = MAX_THREADS + 5
    run = opened(*(_slice("op", n, 1 + n, tid=str(n)) for n in range(threads)))
    labels = [label for _, label, _ in tile_of(run)["labels"]]
    assert len(labels) == MAX_THREADS + 1
    assert "5 less busy threads" in labels
    assert "tid 4" not in labels
    assert "tid 5" in labels


def test_a_slice_of_another_program_is_described_and_found(opened):
    run = opened(
        _slice("first", 0, 5, cat="cpu_op", args={"Input": "[3, 4]"}),
        _slice(HOSTILE, 100, 7, args={"long": "x" * 5000}),
    )
    place = run.swimlane.find("FIR", 0)
    assert (place["name"], place["begin_ns"], place["end_ns"]) == ("first", 0, 5000)
    said = dict(run.swimlane.describe(place["row"])["lines"])
    assert said["category"] == "cpu_op"
    assert said["thread"] == "tid 7"
    assert said["said"] == '{"Input": "[3, 4]"}'
    other = run.swimlane.find(HOSTILE[:4], 0)
    found = run.swimlane.describe(other["row"])
    assert found["title"] == HOSTILE
    assert dict(found["lines"])["said"].endswith(" ...")


@pytest.mark.parametrize("row", [-1, -4])
def test_a_row_that_is_not_there_has_no_description(opened, row):
    with pytest.raises(IndexError):
        opened(_slice("first", 0, 5), _slice("second", 9, 5)).swimlane.describe(row)


NO_NUMBER = {"ph": "C", "name": "memory", "ts": 1, "pid": "1", "args": {"bytes": "three"}}
FLOW = {"ph": "s", "name": "flow", "ts": 1, "pid": "1", "tid": "7", "id": 1}
INSTANT = {"ph": "i", "name": "mark", "ts": 9, "pid": "1", "tid": "8"}
OBJECT = {"ph": "N", "name": "thing", "ts": 3, "pid": "1", "tid": "7", "id": 5}


def _count(at_us, pid="1", name="memory", **args):
    return {"ph": "C", "name": name, "ts": at_us, "pid": pid, "args": args}


def levels_of(tile):
    """The label of each counter, its values of all time, and the lowest and highest by pixel."""
    return {
        tile["labels"][lane][1]: (low, high, levels.tolist())
        for (lane, low, high), levels in zip(tile["counters"], tile["levels"], strict=True)
    }


def test_a_counter_holds_its_value_until_the_next(opened):
    run = opened(_slice("op", 0, 40), _count(10, b=5), _count(12, b=-1), _count(30, b=2.5))
    tile = decode(run.swimlane.tile(TileWindow.of(0, 40_000, 4)))
    expected = [[None, -1, -1, 2.5], [None, 5, -1, 2.5]]
    low, high, levels = levels_of(tile)["memory"]
    assert (low, high) == (-1, 5)
    assert [[None if np.isnan(v) else v for v in row] for row in levels] == expected
    assert run.trace.warnings == []
    assert "memory" not in {row["lane"] for row in run.swimlane.totals(TileWindow.of(0, 9, 1))}


def test_counters_are_told_apart_by_what_is_not_alike(opened):
    run = opened(
        _slice("op", 0, 40), _title("1", "python"), _title("2", "GPU 0"),
        _count(1, name="load", used=1), _count(1, name="memory", used=1, free=2),
        _count(1, pid="2", name="memory", used=1), _count(2, pid="2", name="memory", free=True),
    )  # fmt: skip
    assert list(levels_of(tile_of(run))) == [
        "load",
        "python memory used",
        "memory free",
        "GPU 0 memory used",
    ]


def test_a_counter_goes_on_behind_the_last_slice_and_may_be_all_there_is(opened):
    run = opened(_count(1, b=1), _count(90, b=2))
    assert run.swimlane.last_ns == 89_001
    assert list(levels_of(tile_of(run))) == ["memory"]


def test_counters_beyond_those_that_can_be_drawn_are_counted(opened, monkeypatch):
    monkeypatch.setattr("hvdtune.dashboard.swimlane.MAX_COUNTERS", 2)
    tile = tile_of(opened(*(_count(1, name=f"counter {n}", b=1) for n in range(5))))
    assert (list(levels_of(tile)), tile["counters_hidden"]) == (["counter 0", "counter 1"], 3)


def _flow(letter, at_us, tid, **more):
    return {"ph": letter, "name": "flow", "ts": at_us, "pid": "1", "tid": tid, "id": 1} | more


@pytest.mark.parametrize(
    ("events", "flows"),
    [
        pytest.param(
            [_flow("s", 2, "7"), _flow("f", 30, "8")], [[0, 2000, 1, 30000, "flow"]], id="one"
        ),
        pytest.param(
            [_flow("f", 40, "7"), _flow("t", 30, "8"), _flow("s", 2, "7")],
            [[0, 2000, 1, 30000, "flow"], [1, 30000, 0, 40000, "flow"]],
            id="by way of a third event, in any order",
        ),
        pytest.param(
            [_flow("s", 2, "7"), _flow("f", 30, "8", id=2), _flow("f", 1, "8", cat="else")],
            [],
            id="none between events of other ids or categories",
        ),
        pytest.param(
            [_flow("s", 2, "7"), _flow("f", 9, "8"), _flow("s", 20, "8"), _flow("f", 30, "7")],
            [[0, 2000, 1, 9000, "flow"], [1, 20000, 0, 30000, "flow"]],
            id="an id that is used twice",
        ),
    ],
)
def test_flows_are_arrows_between_lanes(opened, events, flows):
    run = opened(_slice("a", 0, 50), _slice("b", 0, 50, tid="8"), *events)
    tile = tile_of(run)
    assert (tile["flows"], tile["flows_hidden"]) == (flows, 0)
    alone = [text for text in run.trace.warnings if "without another end" in text]
    assert len(alone) == (not flows)
    assert not alone or alone[0].startswith(f"{counted(len(events), 'flow event')} without")


def test_arrows_of_a_window_with_many_are_counted_and_not_drawn(opened, monkeypatch):
    monkeypatch.setattr("hvdtune.dashboard.swimlane.MAX_FLOWS", 2)
    pairs = [(_flow("s", n, "7", id=n), _flow("f", n + 9, "8", id=n)) for n in range(20)]
    run = opened(_slice("a", 0, 50), _slice("b", 0, 50, tid="8"), *(e for p in pairs for e in p))
    assert tile_of(run)["flows_hidden"] == 20
    few = decode(run.swimlane.tile(TileWindow.of(27_500, 40_000, 100)))
    assert [flow[1] for flow in few["flows"]] == [19_000]


@pytest.mark.parametrize(
    ("event", "drawn", "said"),
    [
        pytest.param(
            FLOW,
            ["op"],
            "1 flow event without another end .*: the first is 'flow' "
            r"\(at 0.001 ms\).*record for longer",
            id="half a flow",
        ),
        pytest.param(
            NO_NUMBER,
            ["op"],
            "1 counter event without a number .*: the first is 'memory' "
            r"\(at 0.001 ms\).*written as",
            id="a counter of a word",
        ),
        pytest.param(OBJECT, ["op"], "1 event of kinds that are not drawn", id="an object"),
        pytest.param(INSTANT, ["mark", "op"], None, id="an instant, which is drawn"),
    ],
)
def test_of_what_is_not_drawn_it_is_said_what_where_and_what_to_do(opened, event, drawn, said):
    run = opened(_slice("op", 0, 50), event)
    tile = tile_of(run)
    assert sorted(tile["names"][code] for code in tile["name"]) == drawn
    assert len(run.trace.warnings) == (said is not None)
    assert said is None or re.match(said, run.trace.warnings[0])


@pytest.mark.parametrize(("ranks", "lanes"), [([0], 1), ([1], 0)], ids=["there", "not there"])
def test_ranks_can_be_chosen(opened, ranks, lanes):
    assert tile_of(opened(_slice("op", 0, 50)), ranks=ranks)["lanes"] == lanes


def test_rows_of_both_tables_share_a_tile():
    run = open_run(KINETO)
    others = run.trace.others
    seen = set()
    edges = np.linspace(0, run.swimlane.last_ns + 1, 60).astype(int)
    for first, last in pairwise(edges):
        tile = decode(run.swimlane.tile(TileWindow.of(first, last, 1200)))
        assert tile["exact"]
        for row, code in zip(tile["row"].tolist(), tile["name"].tolist(), strict=True):
            name = tile["names"][code]
            if row < -1:
                assert name == str(others.rows["name"].iloc[-2 - row])
            seen.add(row)
    assert {row for row in seen if row < -1} == set(range(-1 - len(others), -1))
    assert any(row >= 0 for row in seen)


def test_a_process_with_a_gpu_and_no_collectives_is_answered_with_its_gpu(opened):
    step = _slice("ProfilerStep#1", 0, 100, tid="1", cat="user_annotation")
    kernel = _slice("gemm", 10, 25, tid="7", cat="kernel")
    said = str(overview.layout(opened(step, kernel, _slice("op", 5, 2, cat="cpu_op")), PLACE))
    assert "The GPU is idle in 75 % of 0.1 ms" in said
    assert "Where the time of a step goes" not in said and "Efficiency" not in said
