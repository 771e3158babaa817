"""What kind of file a path is, whatever it is called."""

import gzip
from pathlib import Path

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
