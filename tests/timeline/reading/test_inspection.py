"""What kind of file a path is, whatever it is called."""

import bz2
import gzip
import json
import lzma
import zipfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from hvdtune.errors import TraceFormatError
from hvdtune.timeline import open_trace
from hvdtune.timeline.reading.inspection import inspect
from hvdtune.timeline.reading.json import source
from tests.kit import rank_files
from tests.kit.traces import event, write


@pytest.mark.parametrize(
    ("start", "kind"),
    [
        (b"HVDTRACE....", "recording"),
        (b"PAR1....", "parquet"),
        (b"PK\x03\x04....", "archive"),
        (b"PK\x00\x04....", "archive"),
        pytest.param(gzip.compress(b"[]"), "text", id="gzip"),  # whose header holds the time
        (b' \n{"traceEvents":[]}', "text"),
        (b"hello", "text"),
        (b"", "empty"),
    ],
)
def test_a_file_is_known_by_its_first_bytes(tmp_path: Path, start: bytes, kind: str) -> None:
    path = rank_files.write(tmp_path / "trace.json", start)
    assert inspect(path).kind == kind


def test_what_only_lies_in_a_folder_has_to_look_like_a_trace(tmp_path: Path) -> None:
    path = rank_files.write(tmp_path / "notes.txt", b"hello")
    assert isinstance(inspect(path, listed=True).error, TraceFormatError)


def test_an_empty_file_that_may_be_a_ranks_is_told_of(tmp_path: Path) -> None:
    write(tmp_path / "t_rank0.json", event("X", 5, dur=2))
    for name in ("t_rank1.json", "train.log", "__init__.py"):
        (tmp_path / name).touch()
    trace = open_trace(tmp_path)
    assert trace.warnings == [f"{tmp_path / 't_rank1.json'}: the file is empty"]
    assert [Path(file.path).name for file in trace.files] == ["t_rank0.json"]


def test_an_empty_file_with_a_second_segment_is_a_recording(tmp_path: Path) -> None:
    for name in ("rank-0.hvt", "rank-0.hvt.1"):
        (tmp_path / name).touch()
    assert inspect(tmp_path / "rank-0.hvt").kind == "recording"


def test_a_trace_says_in_one_line_what_it_holds(tmp_path: Path) -> None:
    trace = open_trace(write(tmp_path / "a.json", event("X", 5, dur=2), event("X", 9, dur=1)))
    assert repr(trace) == "<Trace: 2 slices, 0 ranks, 1 file, 0 warnings>"


def test_a_path_is_opened_once_to_inspect_and_once_to_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, count = write(tmp_path / "a.json", event("X", 5, dur=2)), []
    plain = source.opened

    def counted(path: Path):  # type: ignore[no-untyped-def]
        count.append(path)
        return plain(path)

    for module in ("inspection", "opening", "cache"):
        monkeypatch.setattr(f"hvdtune.timeline.reading.{module}.opened", counted)
    open_trace(path)
    assert count == [path, path]


def zstd(data: bytes) -> bytes:
    packed = pa.BufferOutputStream()
    with pa.CompressedOutputStream(packed, "zstd") as stream:
        stream.write(data)
    return packed.getvalue().to_pybytes()


PACKINGS = [gzip.compress, bz2.compress, lzma.compress, zstd]
EVENTS = [event("X", 10 * number, f"n{number * number}", dur=3) for number in range(2000)]
TEXT = json.dumps({"traceEvents": EVENTS}).encode()


@pytest.mark.parametrize("pack", PACKINGS, ids=lambda pack: pack.__name__)
def test_packed_traces_are_opened_named_or_listed(tmp_path: Path, pack) -> None:  # type: ignore[no-untyped-def]
    rank_files.write(tmp_path / "trace", pack(TEXT))
    for path in (tmp_path / "trace", tmp_path):
        trace = open_trace(path)
        assert (len(trace.slices), trace.warnings) == (2000, [])
    rank_files.write(tmp_path / "trace", pack(TEXT[:-900]) + pack(TEXT[-900:]))
    assert len(open_trace(tmp_path / "trace").slices) == 2000
    rank_files.write(tmp_path / "trace", gzip.compress(pack(TEXT)))
    assert len(open_trace(tmp_path / "trace").slices) == 2000


@pytest.mark.parametrize("pack", PACKINGS, ids=lambda pack: pack.__name__)
def test_packed_traces_that_are_cut_off_give_their_beginning(tmp_path: Path, pack) -> None:  # type: ignore[no-untyped-def]
    part = TEXT[: len(TEXT) // 2]
    whole = pack(part) + pack(TEXT[len(part) :])  # a block of bzip2 is whole or lost
    path = rank_files.write(tmp_path / "trace", whole[: len(pack(part)) + 40])
    trace = open_trace(path)
    assert 700 < len(trace.slices) < 2000
    assert any("compressed data are" in text for text in trace.warnings)


SPEEDSCOPE = {"$schema": "https://www.speedscope.app/file-format-schema.json", "shared": {}}
KINDS = {
    "Perfetto": b"\n\x09\x30\x01\x3a\x05hello\n\x04\x30\x02\x40\x03" * 9,
    "speedscope": json.dumps(SPEEDSCOPE | {"profiles": []}).encode(),
    "speedscope.app": json.dumps({"shared": {"frames": [1] * 9}, "profiles": [{}]}).encode(),
    "cpuprofile": b'{"nodes":[{"id":1,"callFrame":{"url":""}}],"samples":[1],"timeDeltas":[2]}',
    "git lfs pull": b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n",
    "HTML page": b"\n<!DOCTYPE html>\n<html><head><title>Log in</title>",
}


@pytest.mark.parametrize("said", KINDS)
@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstd], ids=["plain", "gzip", "zstd"])
def test_known_kinds_of_file_are_named(
    tmp_path: Path, said: str, pack: Callable[[bytes], bytes]
) -> None:
    path = rank_files.write(tmp_path / "trace.json.gz", pack(KINDS[said]))
    with pytest.raises(TraceFormatError, match=said) as caught:
        open_trace(path)
    assert str(path) in str(caught.value)


def test_a_text_that_begins_with_an_empty_line_is_no_perfetto_trace(tmp_path: Path) -> None:
    path = rank_files.write(tmp_path / "trace.json", b"\n" + TEXT)
    assert len(open_trace(path).slices) == 2000


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_archives_of_other_methods_are_opened(tmp_path: Path, method: int) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w", method) as archive:
        archive.writestr("a.json", TEXT)
    assert len(open_trace(tmp_path / "a.zip").slices) == 2000
