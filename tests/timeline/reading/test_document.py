import json

import pytest

from hvdtune.errors import TraceFormatError
from tests.kit.traces import SPEEDSCOPE, event, parsed

EVENTS = [event("X", number, f"n{number}", dur=1) for number in range(6)]


def array(*events):
    return json.dumps(events or EVENTS).encode()


def names(result):
    return [result.texts[code] for code in sorted(result.table["name"].to_pylist())]


OBJECT = {"traceEvents": EVENTS, "traceName": "t"}


@pytest.mark.parametrize(
    ("text", "around"),
    [
        pytest.param(array(), {}, id="an array"),
        pytest.param(json.dumps(EVENTS, indent=7).encode(), {}, id="on many lines"),
        pytest.param(json.dumps(OBJECT).encode(), {"traceName": "t"}, id="an object"),
    ],
)
def test_every_form_holds_the_same_events(text, around):
    result = parsed(text)
    assert names(result) == [f"n{number}" for number in range(6)]
    assert (result.around, result.warnings) == (around, [])


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64])
def test_pieces_may_end_anywhere(size):
    text = (SPEEDSCOPE / "simple-object.json").read_bytes() + b"\n"
    assert parsed(text, size).table == parsed(text).table


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
    (warning,) = result.warnings
    assert f"ends at byte {len(text)} without a closing bracket" in warning


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
            f"trace.json: 1 value that is not an object is skipped, the first at byte {at}"
        ]


@pytest.mark.parametrize(
    ("mark", "encoding"),
    [(b"", "utf-16"), (b"\xfe\xff", "utf-16-be")],
    ids=["native", "big endian"],
)
def test_utf_16_is_called_by_its_name(mark, encoding):
    with pytest.raises(TraceFormatError, match=r"trace\.json: byte 0: text in UTF-16"):
        parsed(mark + array().decode().encode(encoding))


@pytest.mark.parametrize(
    "text",
    [b"", b"\n", b"{}", b"hello", b"\x00" * 5000, b'{"a":[1,2]}', b"[]more", b'"ph"', b"[[[["],
)
def test_what_holds_no_event_is_an_error_with_a_byte_offset(text):
    with pytest.raises(TraceFormatError, match=r"trace\.json: ") as caught:
        parsed(text)
    assert 0 <= caught.value.offset <= len(text)


HOSTILE = '}]}{"ph":"X", \\" [['


@pytest.mark.parametrize(
    ("written", "name", "said"),
    [
        pytest.param(json.dumps(HOSTILE).encode(), HOSTILE, [], id="brackets and quotes"),
        pytest.param(b'"n\t3"', "n\t3", [], id="a control character"),
        pytest.param(b'"n\xc3\xa93"', "n\xe93", [], id="UTF-8"),
        pytest.param(b'"n\xff3"', "n?3", ["byte {at} is not UTF-8"], id="bad UTF-8"),
    ],
)
def test_names_are_text_whatever_is_in_them(written, name, said):
    text = array().replace(b'"n3"', written)
    result = parsed(text)
    assert names(result) == ["n0", "n1", "n2", name, "n4", "n5"]
    assert len(result.warnings) == len(said)
    assert [
        each for each in said if each.format(at=text.find(0xFF)) not in result.warnings[0]
    ] == []


@pytest.mark.parametrize(
    ("whole", "damaged"),
    [
        pytest.param(b'"ts": 3', b'"ts" 3', id="a colon is lost"),
        pytest.param(b'"n3"', b'"n3 ', id="a quote is lost"),
    ],
)
def test_a_damaged_event_costs_only_itself(whole, damaged):
    text = array().replace(whole, damaged)
    result = parsed(text)
    assert names(result) == ["n0", "n1", "n2", "n4", "n5"]
    assert result.counts["?"] == {"read": 1, "shown": 0, "reported": 1}
    begin = text.index(b'{"ph": "X", "name": "n3')
    assert f"the event at byte {begin} is damaged at byte " in result.warnings[0]


def test_damage_is_told_with_its_byte():
    text = array().replace(b'"ts": 3', b'"ts" 3')
    at = text.index(b'" 3, ') + 2
    assert f"is damaged at byte {at}" in parsed(text).warnings[0]


BACKSLASHES = (b'"n', b'"C:\\dir\\n')  # as some programs write names of Windows files
REPRS = (b'"', b"'")


@pytest.mark.parametrize("change", [BACKSLASHES, REPRS], ids=["backslashes", "repr"])
@pytest.mark.parametrize("bad", [range(1, 3), range(2, 6), range(3), range(6)], ids=str)
@pytest.mark.parametrize(
    ("head", "tail"),
    [("[", "]"), ('{"traceEvents": [', '], "a": [1], "b": {"c": [NaN]}}'), ("[", "")],
)
def test_each_of_several_damaged_events_is_counted(change, bad, head, tail):
    rows = [json.dumps(each).encode() for each in EVENTS]
    rows = [row.replace(*change) if number in bad else row for number, row in enumerate(rows)]
    text = head.encode() + b",\n".join(rows) + tail.encode()
    if len(bad) == len(rows):
        # Without double quotes and a key of a trace it may be anything.
        said = "not a trace" if (change, head) == (REPRS, "[") else "none of its 6 events"
        with pytest.raises(TraceFormatError, match=said):
            parsed(text)
        return
    result = parsed(text, 50)
    assert names(result) == [f"n{number}" for number in range(6) if number not in bad]
    assert result.counts["?"] == {"read": len(bad), "shown": 0, "reported": len(bad)}
    assert any("without a closing bracket" in each for each in result.warnings) == (not tail)
    assert result.around == ({"a": [1], "b": {"c": ["NaN"]}} if "a" in tail else {})


def test_events_behind_the_end_of_the_document_are_counted():
    result = parsed(array() + array(), 20)
    assert result.counts["X"]["shown"] == 6
    assert result.counts["?"]["reported"] == 6
    assert "6 events after the end of the document are not shown" in result.warnings[1]


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity"])
@pytest.mark.parametrize("indent", [None, 2])
def test_numbers_of_python_that_json_lacks_cost_nothing(value, indent):
    events = [each | {"args": {"loss": float(value), "text": '"NaN'}} for each in EVENTS]
    document = {"head": float(value), "traceEvents": events}
    result = parsed(json.dumps(document, indent=indent).encode(), 100)
    assert (len(result.table), result.warnings) == (6, [])
    assert json.loads(result.table["args"][3].as_py()) == {"loss": value, "text": '"NaN'}
    assert result.around == {"head": value}


@pytest.mark.parametrize("byte", [b"x", b"]", b"}", b" ", b'"'])
def test_what_stands_for_a_comma_costs_nothing(byte):
    text = array()
    at = text.index(b"}, {") + 1
    result = parsed(text[:at] + byte + text[at + 1 :])
    assert len(result.table) == 6
    assert f"byte {at}" in result.warnings[0] or "commas before byte" in result.warnings[0]


@pytest.mark.parametrize("byte", b'x"{[,\\', ids=chr)
def test_a_damaged_head_does_not_hide_the_events(byte):
    text = json.dumps({"schemaVersion": 1, "traceEvents": EVENTS}).encode()
    for at in range(text.index(b"[")):
        damaged = bytearray(text)
        damaged[at] = byte
        assert len(parsed(bytes(damaged)).table) == 6


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


NO_EVENTS = [{"name": "no phase"}, {"ph": "XX"}, {"ph": 7}]
SAMPLED = {"traceEvents": EVENTS, "samples": [{"ts": 1}] * 4}


@pytest.mark.parametrize(
    ("text", "phase", "reported", "said"),
    [
        (array(*NO_EVENTS, *EVENTS), "?", 3, "3 objects without a phase letter are skipped"),
        (json.dumps(SAMPLED).encode(), "P", 4, "profiler samples are not shown"),
        (array() + b" more", "X", 0, "data after the end of the document"),
    ],
    ids=["objects that are no events", "samples", "what follows"],
)
def test_what_is_left_out_is_told(text, phase, reported, said):
    result = parsed(text)
    assert result.counts["X"]["shown"] == 6
    assert result.counts[phase]["reported"] == reported
    assert said in result.warnings[0]


def test_many_problems_are_summed_up():
    result = parsed(b"[" + b",{},".join([array()[1:-1]] * 100).replace(b"{}", b'{"ph":X}') + b"]")
    assert len(result.table) == 600
    assert result.counts["?"]["reported"] == 99
    assert len(result.warnings) < 30
    assert any("more places are damaged" in text for text in result.warnings)


@pytest.mark.parametrize(
    ("text", "is_told"),
    [
        pytest.param(b"import hvdtune\n" * 40, False, id="another kind of file"),
        pytest.param(b'?"traceEvents"' * 40, True, id="what resembles a trace"),
    ],
)
def test_only_what_resembles_a_trace_is_told_where_it_is_damaged(text, is_told):
    with pytest.raises(TraceFormatError) as caught:
        parsed(text)
    said = str(caught.value)
    assert said.endswith(": not a trace")
    assert ("damaged" in said) == is_told, said
