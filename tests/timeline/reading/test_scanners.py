"""The scanner in C++ and the one in Python read the same."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hvdtune.timeline.reading.json.batch import PythonScanner
from hvdtune.timeline.reading.json.source import chunks
from tests.kit.traces import ALL, event, parsed

native = pytest.importorskip("hvdtune.timeline.reading.json.native_scan", exc_type=ImportError)

NUMBERS = st.integers(-(10**14), 10**14) | st.floats(-1e9, 1e9).map(lambda x: round(x, 5))
TEXTS = st.text(max_size=8)
VALUES = st.none() | st.booleans() | NUMBERS | TEXTS | st.lists(st.integers(), max_size=2)
KEYS = st.sampled_from(["seq", "step", "bucket", "bytes", "process_set", "cached", "x"]) | TEXTS
ARGS = st.dictionaries(KEYS, VALUES | st.dictionaries(TEXTS, VALUES, max_size=2), max_size=4)
EVENTS = st.fixed_dictionaries(
    {"ph": st.sampled_from("XBEiCbenstfM"), "ts": NUMBERS | NUMBERS.map(str)},
    optional={
        "name": TEXTS, "cat": TEXTS, "pid": st.integers(0, 9) | TEXTS, "tid": VALUES,
        "id": st.integers() | TEXTS, "dur": NUMBERS | st.none(), "args": ARGS | VALUES,
        "cycle": st.integers(-1, 5), "s": TEXTS,
    },
)  # fmt: skip


def readings(text):
    both = [parsed(text, scanner=scanner()) for scanner in (native.NativeScanner, PythonScanner)]
    for result in both:
        columns = result.table.to_pylist()
        for row in columns:
            for key in ("name", "category", "id"):
                row[key] = result.texts[row[key]]
            row["track"] = (result.tracks.pid[row["track"]], result.tracks.tid[row["track"]])
        columns.sort(key=repr)
        yield columns, result.counts, result.around, result.tracks.processes


@settings(max_examples=60, deadline=None)
@given(st.lists(EVENTS, min_size=1, max_size=8), st.booleans())
def test_they_agree_on_events(events, ascii_only):
    document = json.dumps([event("i", 0), *events], ensure_ascii=ascii_only).encode()
    one, other = readings(document)
    assert one == other


@settings(max_examples=60, deadline=None)
@given(
    st.lists(EVENTS, min_size=3, max_size=5),
    st.integers(0, 10**6),
    st.sampled_from(b'x",:{}[]0\\ \n\xff'),
)
def test_they_agree_on_damage(events, at, byte):
    document = bytearray(json.dumps([event("i", 0), *events, event("i", 1)]).encode())
    document[40 + at % (len(document) - 80)] = byte
    one, other = readings(bytes(document))
    assert one == other


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.name)
def test_they_agree_on_traces_of_other_programs(path):
    from hvdtune.timeline.reading.json.damage import DamageReport

    with open(path, "rb") as file:
        text = b"".join(
            chunks(file, b"" if path.suffix == ".json" else file.read(8), DamageReport(""))
        )
    one, other = readings(text)
    assert one == other
