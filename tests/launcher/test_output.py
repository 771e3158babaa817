import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvdtune.launcher.output import LineSplitter, file_writer, stamped


@pytest.mark.parametrize(
    ("chunks", "lines"),
    [
        ([b"a\nb\n"], [b"a\n", b"b\n"]),
        ([b"a", b"b\n"], [b"ab\n"]),
        ([b"a"], [b"a\n"]),
        ([b"10%\r20%\r", b"30%\n"], [b"10%\r", b"20%\r", b"30%\n"]),
        ([b"dos\r", b"\n"], [b"dos\r\n"]),
        ([b"last\r"], [b"last\n"]),
        ([b"\n\n"], [b"\n", b"\n"]),
        ([b"\x1b[1m\xff\x00\n"], [b"\x1b[1m\xff\x00\n"]),
    ],
)
def test_streams_are_cut_into_lines(chunks, lines):
    splitter = LineSplitter()
    cut = [line for chunk in chunks for line in splitter.feed(chunk)]
    assert cut + splitter.finish() == lines


@given(st.lists(st.text("ab\r\n", min_size=1), min_size=1))
def test_the_cut_does_not_depend_on_the_chunks(chunks):
    data = [chunk.encode() for chunk in chunks]
    pieces, whole = LineSplitter(), LineSplitter()
    by_pieces = [line for chunk in data for line in pieces.feed(chunk)] + pieces.finish()
    assert by_pieces == whole.feed(b"".join(data)) + whole.finish()


def test_a_line_without_end_comes_in_pieces():
    splitter = LineSplitter()
    cut = [line for _ in range(4) for line in splitter.feed(b"x" * 50_000)]
    assert sum(line.count(b"x") for line in cut + splitter.finish()) == 200_000
    assert all(len(line) < 150_000 for line in cut)


def test_both_streams_go_to_one_log(tmp_path):
    path = tmp_path / "launch-0.log"
    with path.open("wb", buffering=0) as file:
        write = file_writer(file)
        write("stdout", b"[0]<stdout>:a\n")
        write("stderr", b"[0]<stderr>:b\n")
        assert path.read_bytes() == b"[0]<stdout>:a\n[0]<stderr>:b\n"


def test_the_time_stands_before_every_line():
    written = []
    stamped(lambda stream, text: written.append((stream, text)))("stderr", b"[0]<stderr>:a\nb\r")
    [(stream, text)] = written
    assert stream == "stderr"
    stamp = rb"\w{3} \w{3} \d\d \d\d:\d\d:\d\d \d{4}"
    assert re.fullmatch(stamp + rb"\[0\]<stderr>:a\n" + stamp + rb"b\r", text)
