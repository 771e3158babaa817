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


def test_an_end_closes_what_was_begun_last_on_its_thread():
    result, rows = table(
        event("B", 0, "a"), event("B", 1, "b"), event("B", 1, "other", tid=3),
        event("E", 4, ""), event("E", 5, "", tid=3), event("E", 9, ""),
    )  # fmt: skip
    assert spans(rows) == [("a", 0, 9), ("other", 1, 5), ("b", 1, 4)]
    assert result.warnings == []


def test_begins_and_ends_may_come_in_any_order():
    _, rows = table(event("E", 9, "a"), event("B", 1, "b"), event("E", 4, "b"), event("B", 0, "a"))
    assert spans(rows) == [("a", 0, 9), ("b", 1, 4)]


def test_what_has_no_end_is_open_until_the_last_time_of_its_thread():
    _, rows = table(event("B", 0, "a"), event("X", 3, "b", dur=4))
    assert spans(rows) == [("a", 0, 7), ("b", 3, 7)]
    assert [row["open"] for row in rows] == [True, False]


def test_an_end_of_nothing_is_reported():
    result, rows = table(event("E", 1), event("B", 2, "a"), event("E", 3), event("E", 4))
    assert spans(rows) == [("a", 2, 3)]
    assert result.counts["E"] == {"read": 3, "shown": 1, "reported": 2}
    assert "2 'E' events end what has not begun" in result.warnings[0]


def test_an_end_of_another_name_is_noted():
    result, _ = table(event("B", 1, "a"), event("E", 2, "b"))
    assert "1 'E' events name another slice" in result.warnings[0]


def test_arguments_of_begin_and_end_are_joined():
    _, rows = table(
        event("B", 1, args={"x": 1}), event("E", 2, args={"y": 2}),
        event("B", 3), event("E", 4, args={"seq": 7}),
    )  # fmt: skip
    assert json.loads(rows[0]["args"]) == {"x": 1, "y": 2}
    assert json.loads(rows[1]["args"]) == {"seq": 7}
    assert rows[1]["seq"] == 7


def test_asynchronous_slices_are_matched_by_category_and_id():
    _, rows = table(
        event("b", 1, "read", id=1, cat="io"), event("b", 2, "read", id=2, cat="io"),
        event("n", 3, "read", id=1, cat="io"), event("e", 4, "read", id=1, cat="io", tid=9),
        event("e", 9, "read", id=2, cat="io"),
    )  # fmt: skip
    assert spans(rows) == [("read", 1, 4), ("read", 2, 9), ("read", 3, 3)]
    assert [row["phase"] for row in rows] == ["b", "b", "n"]


@pytest.mark.parametrize("phase", list("XiICnstfPRNODvVcTp"))
def test_every_phase_is_shown(phase):
    result, rows = table(event(phase, 1, id=3))
    assert len(rows) == 1
    assert result.counts[phase] == {"read": 1, "shown": 1, "reported": 0}


@pytest.mark.parametrize(
    ("odd", "said"),
    [
        (event("Z", 1), "a phase that is not known ('Z')"),
        (event("X", 1, dur=-1), "slices end before they begin ('X')"),
        ({"ph": "i", "name": "x"}, "events have no time ('i')"),
        ({"ph": "M", "name": "odd"}, "metadata events are not titles ('odd')"),
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
