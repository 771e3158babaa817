import json

import pytest

from tests.kit.traces import event, parsed


def table(*events):
    result = parsed(json.dumps(events).encode())
    rows = result.table.to_pylist()
    for row in rows:
        row["name"], row["phase"] = result.texts[row["name"]], chr(row["phase"])
    return result, sorted(rows, key=lambda row: (row["begin_ns"], -row["end_ns"]))


def spans(rows):
    return [(row["name"], row["begin_ns"] // 1000, row["end_ns"] // 1000) for row in rows]


@pytest.mark.parametrize(
    ("events", "shown", "phases"),
    [
        pytest.param([
            event("B", 0, "a"), event("B", 1, "b"), event("B", 1, "other", tid=3),
            event("E", 4, ""), event("E", 5, "", tid=3), event("E", 9, ""),
        ], [("a", 0, 9), ("other", 1, 5), ("b", 1, 4)], "XXX", id="last on its thread"),
        pytest.param([
            event("E", 9, "a"), event("B", 1, "b"), event("E", 4, "b"), event("B", 0, "a"),
        ], [("a", 0, 9), ("b", 1, 4)], "XX", id="in any order"),
        pytest.param([
            event("b", 1, "read", id=1, cat="io"), event("b", 2, "read", id=2, cat="io"),
            event("n", 3, "read", id=1, cat="io"), event("e", 4, "read", id=1, cat="io", tid=9),
            event("e", 9, "read", id=2, cat="io"),
        ], [("read", 1, 4), ("read", 2, 9), ("read", 3, 3)], "bbn", id="by category and id"),
    ],
)  # fmt: skip
def test_an_end_closes_what_was_begun(events, shown, phases):
    result, rows = table(*events)
    assert spans(rows) == shown
    assert [row["phase"] for row in rows] == [*phases]
    assert result.warnings == []


def test_what_has_no_end_is_open_until_the_last_time_of_its_thread():
    _, rows = table(event("B", 0, "a"), event("X", 3, "b", dur=4))
    assert spans(rows) == [("a", 0, 7), ("b", 3, 7)]
    assert [row["open"] for row in rows] == [True, False]


@pytest.mark.parametrize(
    ("events", "shown", "reported", "said"),
    [
        pytest.param(
            [event("E", 1), event("B", 2, "a"), event("E", 3), event("E", 4)],
            [("a", 2, 3)], 2, "2 'E' events have no begin event", id="of nothing"
        ),
        pytest.param(
            [event("B", 1, "a"), event("E", 2, "b")],
            [("a", 1, 2)], 0, "1 'E' event has the name of another slice", id="of another name"
        ),
    ],
)  # fmt: skip
def test_an_end_that_does_not_fit_is_told_of(events, shown, reported, said):
    result, rows = table(*events)
    assert spans(rows) == shown
    assert result.counts["E"] == {"read": 1 + reported, "shown": 1, "reported": reported}
    assert said in result.warnings[0]


@pytest.mark.parametrize(
    ("begin", "end", "joined"),
    [
        ({"args": {"x": 1}}, {"args": {"y": 2}}, {"x": 1, "y": 2}),
        ({}, {"args": {"seq": 7}}, {"seq": 7}),
    ],
    ids=["of both", "of the end"],
)
def test_arguments_of_begin_and_end_are_joined(begin, end, joined):
    _, (row,) = table(event("B", 1, **begin), event("E", 2, **end))
    assert json.loads(row["args"]) == joined
    assert row["seq"] == joined.get("seq", -1)


@pytest.mark.parametrize("phase", list("XiICnstfPRNODvVcTp"))
def test_every_phase_is_shown(phase):
    result, rows = table(event(phase, 1, id=3))
    assert len(rows) == 1
    assert result.counts[phase] == {"read": 1, "shown": 1, "reported": 0}


@pytest.mark.parametrize(
    ("odd", "said"),
    [
        (event("Z", 1), "event has an unknown phase ('Z')"),
        (event("X", 1, dur=-1), "slice ends before it begins ('X')"),
        ({"ph": "i", "name": "x"}, "event has no time ('i')"),
        ({"ph": "M", "name": "odd"}, "metadata event has an unknown name ('odd')"),
    ],
)
def test_what_is_not_shown_is_reported(odd, said):
    result, rows = table(odd, event("i", 2))
    assert len(rows) == 1
    assert result.counts[odd["ph"]]["reported"] == 1
    assert said in result.warnings[0]


def test_titles_may_come_last():
    result, _ = table(
        event("i", 1),
        {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "p"}},
        {"ph": "M", "name": "thread_name", "pid": 1, "tid": 2, "args": {"name": "t"}},
        {"ph": "M", "name": "thread_sort_index", "pid": 1, "tid": 2, "args": {"sort_index": 1}},
    )
    assert result.tracks.processes == {"1": "p"}
    assert result.tracks.threads == {"1": {"2": "t"}}
    assert result.counts["M"] == {"read": 3, "shown": 3, "reported": 0}
