import json

import pytest

from hvdtune.errors import TraceFormatError
from tests.kit.traces import SPEEDSCOPE, event, parsed

EVENTS = [event("X", number, f"n{number}", dur=1) for number in range(6)]


def array(*events):
    return json.dumps(events or EVENTS).encode()


def names(result):
    return [result.texts[code] for code in sorted(result.table["name"].to_pylist())]


def test_object_and_array_form_hold_the_same_events():
    whole = parsed(json.dumps({"traceEvents": EVENTS, "traceName": "t"}).encode())
    assert names(whole) == names(parsed(array())) == [f"n{number}" for number in range(6)]
    assert whole.around == {"traceName": "t"}
    assert whole.warnings == []


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64])
def test_pieces_may_end_anywhere(size):
    text = (SPEEDSCOPE / "simple-object.json").read_bytes() + b"\n"
    assert parsed(text, size).table == parsed(text).table


def test_events_may_follow_on_one_line_or_on_many():
    spread = json.dumps(EVENTS, indent=7).encode()
    assert names(parsed(spread)) == names(parsed(array()))


@pytest.mark.parametrize("ending", [b"", b",", b",\n\n  ", b"\n"])
def test_an_array_that_is_never_closed_is_read_to_its_end(ending):
    text = array().removesuffix(b"]") + ending
    result = parsed(text)
    assert len(result.table) == 6
    assert result.warnings == [
        f"trace.json: ends at byte {len(text)} without a closing bracket: still being written, "
        "or cut off"
    ]


@pytest.mark.parametrize(
    "text", [b"[]", b" [ ]\n", b'{"traceEvents": []}', b'{"traceEvents":[],"a":1}']
)
def test_a_trace_may_have_no_events(text):
    result = parsed(text, 1)
    assert (len(result.table), result.counts, result.warnings) == (0, {}, [])


@pytest.mark.parametrize("text", [b"[", b'{"traceEvents":[', b'{"traceEvents":[]'])
def test_a_trace_cut_off_before_its_events_has_none(text):
    result = parsed(text)
    assert len(result.table) == 0
    assert f"ends at byte {len(text)} without a closing bracket" in result.warnings[0]


@pytest.mark.parametrize("value", [b"5", b'"text"', b"null", b"NaN", b"[1, {}]"])
def test_values_that_are_no_objects_are_told_and_nothing_else(value):
    for text in (
        array()[:-1] + b"," + value + b" ]",
        array().replace(b"[", b"[" + value + b",", 1),
    ):
        result = parsed(text, 100)
        assert len(result.table) == 6
        at = text.index(value) if text.startswith(b"[" + value) else text.rindex(value)
        assert result.warnings == [
            f"trace.json: 1 values that are no objects are left out, the first at byte {at}"
        ]


def test_utf_16_is_called_by_its_name():
    for encoding in ("utf-16", "utf-16-be"):
        mark = b"" if encoding == "utf-16" else b"\xfe\xff"
        with pytest.raises(TraceFormatError, match=r"trace\.json: byte 0: this text is UTF-16"):
            parsed(mark + array().decode().encode(encoding))


@pytest.mark.parametrize(
    "text",
    [b"", b"\n", b"{}", b"hello", b"\x00" * 5000, b'{"a":[1,2]}', b"[]more", b'"ph"', b"[[[["],
)
def test_what_holds_no_event_is_an_error_with_a_byte_offset(text):
    with pytest.raises(TraceFormatError, match=r"trace\.json: ") as caught:
        parsed(text)
    assert 0 <= caught.value.offset <= len(text)


def test_brackets_and_quotes_in_names_are_text():
    hostile = '}]}{"ph":"X", \\" [['
    result = parsed(array(event("X", 1, hostile, dur=1), *EVENTS))
    assert hostile in result.texts
    assert len(result.table) == 7


def test_control_characters_and_bad_utf8_in_names_are_read():
    text = array().replace(b"n3", b"n\t3").replace(b"n4", b"n\xff4").replace(b"n5", b"n\xc3\xa95")
    result = parsed(text)
    assert {"n\t3", "n?4", "n\xe95"} <= set(result.texts)
    assert f"byte {text.index(0xFF)} is not UTF-8" in result.warnings[0]


def test_a_damaged_event_costs_only_itself():
    text = array().replace(b'"ts": 3', b'"ts" 3')
    result = parsed(text)
    assert names(result) == ["n0", "n1", "n2", "n4", "n5"]
    assert result.counts["?"] == {"read": 1, "shown": 0, "reported": 1}
    begin = text.index(b'{"ph": "X", "name": "n3"')
    assert (
        f"the event at byte {begin} is damaged at byte {text.index(b'3, ', begin)}"
        in (result.warnings[0])
    )


def test_a_quote_that_is_lost_costs_one_event():
    result = parsed(array().replace(b'"n3"', b'"n3 '))
    assert names(result) == ["n0", "n1", "n2", "n4", "n5"]


@pytest.mark.parametrize("byte", [b"x", b"]", b"}", b" ", b'"'])
def test_what_stands_for_a_comma_costs_nothing(byte):
    text = array()
    at = text.index(b"}, {") + 1
    result = parsed(text[:at] + byte + text[at + 1 :])
    assert len(result.table) == 6
    assert f"byte {at}" in result.warnings[0] or "commas before byte" in result.warnings[0]


def test_a_damaged_head_does_not_hide_the_events():
    text = json.dumps({"schemaVersion": 1, "traceEvents": EVENTS}).encode()
    for at in range(text.index(b"[")):
        for byte in b'x"{[,\\':
            damaged = bytearray(text)
            damaged[at] = byte
            result = parsed(bytes(damaged))
            assert len(result.table) == 6


def test_deep_nesting_is_damage_and_soon_over():
    deep = array().replace(b'"n2"', b"[" * 100_000)
    assert names(parsed(deep)) == ["n0", "n1", "n3", "n4", "n5"]
    brackets = b"[" + b'{"a":' * 100_000
    with pytest.raises(TraceFormatError):
        parsed(brackets)


@pytest.mark.parametrize(("size", "read"), [(3 << 20, True), (9 << 20, False)])
def test_an_event_may_be_large_but_not_without_end(size, read):
    large = event("X", 1, "large", dur=1, args={"text": "x" * size})
    result = parsed(array(EVENTS[0], large, EVENTS[1]), 1 << 20)
    assert len(result.table) == 2 + read
    assert (result.warnings == []) == read


def test_numbers_may_be_texts_and_ids_anything():
    odd = event("X", 1, dur="2.5") | {"ts": "1000000.25", "pid": "Spans", "tid": 1.5, "cat": None}
    result = parsed(array(odd))
    assert result.table["begin_ns"].to_pylist() == [1_000_000_250]
    assert result.table["end_ns"].to_pylist() == [1_000_002_750]
    assert result.tracks.pid == ["Spans"]
    assert result.tracks.tid == ["1.5"]


@pytest.mark.parametrize("ts", ["1e300", "-1e300", '"soon"', "9" * 400, "[]", "true", "NaN"])
def test_times_that_are_none_are_reported(ts):
    text = array().replace(b'"ts": 3', b'"ts": ' + ts.encode())
    result = parsed(text)
    assert names(result) == ["n0", "n1", "n2", "n4", "n5"]
    assert sum(numbers["reported"] for numbers in result.counts.values()) == 1
    out_of_range = ts.strip("-")[0].isdecimal()
    assert ("whose time is out of range" in " ".join(result.warnings)) == out_of_range


def test_objects_that_are_no_events_are_reported():
    result = parsed(array({"name": "no phase"}, {"ph": "XX"}, {"ph": 7}, *EVENTS))
    assert result.counts["?"]["reported"] == 3
    assert (
        "3 objects without a phase letter are left out, the first at byte 1" in (result.warnings[0])
    )


def test_what_follows_the_document_is_told():
    result = parsed(array() + b" more")
    assert len(result.table) == 6
    assert "what follows the document" in result.warnings[0]


def test_samples_are_counted_as_not_shown():
    result = parsed((SPEEDSCOPE / "simple-with-samples.json").read_bytes())
    assert result.counts["P"]["reported"] > 0
    assert "samples of a profiler" in result.warnings[0]


def test_many_problems_are_summed_up():
    result = parsed(b"[" + b",{},".join([array()[1:-1]] * 100).replace(b"{}", b'{"ph":X}') + b"]")
    assert len(result.table) == 600
    assert result.counts["?"]["reported"] == 99
    assert len(result.warnings) < 30
    assert any("more places are damaged" in text for text in result.warnings)
