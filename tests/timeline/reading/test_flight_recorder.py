"""Dumps of the Flight Recorder: what stands, on which ranks, and nothing of them is run."""

import json
import os
import pickle
from pathlib import Path

import pytest

from hvdtune.errors import TraceFormatError
from hvdtune.timeline import open_trace, write_slices
from hvdtune.timeline.analysis.findings.why import why
from hvdtune.timeline.analysis.report import measure, page
from hvdtune.timeline.model.job_metadata import job_metadata_of
from hvdtune.timeline.reading.dumps import plain_pickle
from hvdtune.timeline.reading.opening import open_light
from tests.kit.flight_recorder import dump, entry, write


def answer_of(path, read=open_trace):  # type: ignore[no-untyped-def]
    trace = read(path)
    return why(trace, job_metadata_of(trace))


WAITING = [entry(1), entry(2, "started")]


@pytest.mark.parametrize("form", ["pickle", "json"])
@pytest.mark.parametrize("read", [open_trace, open_light])
def test_the_rank_that_has_not_called_is_named(tmp_path: Path, form, read) -> None:  # type: ignore[no-untyped-def]
    write(tmp_path, [WAITING, [entry(1)], [entry(1), entry(2, "scheduled")]], form)
    answer = answer_of(tmp_path, read)
    (found,) = answer.findings
    assert (found.kind, found.ranks) == ("missing-call", (1,))
    assert "rank 1 has not called all_reduce, number 2 of group 0 (default_pg)" in found.summary
    assert "it is started on rank 0" in found.evidence
    assert "it is scheduled on rank 2" in found.evidence
    assert any(
        "rank 1 last called all_reduce, number 1 of group 0, which is complete, called at "
        "/home/me/train.py:41 (train)" in text
        for text in found.evidence
    )
    assert answer.headline.startswith("Flight Recorder dumps of 3 ranks: 1 process group with")


def test_a_rank_without_a_dump_is_named_and_less_sure(tmp_path: Path) -> None:
    write(tmp_path, [WAITING, WAITING], world=3)
    (found,) = answer_of(tmp_path).findings
    assert (found.kind, found.ranks, found.confidence) == ("missing-call", (2,), "low")


def test_a_collective_that_all_have_called_accuses_no_rank(tmp_path: Path) -> None:
    write(tmp_path, [WAITING] * 3)
    (found,) = answer_of(tmp_path).findings
    assert (found.kind, found.ranks) == ("incomplete-collective", ())


@pytest.mark.parametrize(
    ("other", "what"),
    [
        ({"op": "nccl:all_gather"}, "operations"),
        ({"size": 512}, "sizes"),
        ({"input_dtypes": ["Half"]}, "dtypes"),
    ],
)
def test_ranks_that_call_something_else_are_named(tmp_path: Path, other, what) -> None:  # type: ignore[no-untyped-def]
    write(tmp_path, [WAITING, WAITING, [entry(1), entry(2, "started", **other)]])
    (found,) = answer_of(tmp_path).findings
    assert (found.kind, found.ranks) == ("different-collectives", (2,))
    assert f"call collective 2 with different {what}" in found.summary


def test_of_two_ranks_that_differ_neither_is_accused(tmp_path: Path) -> None:
    write(tmp_path, [WAITING, [entry(1), entry(2, "started", size=3)]])
    (found,) = answer_of(tmp_path).findings
    assert (found.kind, found.ranks) == ("different-collectives", ())


def test_sizes_of_an_alltoall_may_differ(tmp_path: Path) -> None:
    own = [[entry(1, op="nccl:all_to_all", size=size)] for size in (1, 2)]
    answer = answer_of(write(tmp_path, own))
    assert (answer.verdict, answer.findings) == ("nothing", ())
    assert "every collective is complete on every rank that called it" in answer.headline


def test_what_a_rank_has_forgotten_is_not_missing(tmp_path: Path) -> None:
    write(tmp_path, [[entry(n) for n in range(1, 9)], [entry(n) for n in range(5, 9)]])
    assert answer_of(tmp_path).verdict == "nothing"


def test_entries_are_drawn_and_an_incomplete_one_is_open(tmp_path: Path) -> None:
    trace = open_trace(write(tmp_path, [WAITING]))
    assert trace.slices["kind"].astype(str).tolist() == ["ALLREDUCE"] * 2
    assert trace.slices["open"].tolist() == [False, True]
    assert trace.slices["rank"].tolist() == [0, 0]
    assert trace.slices["seq"].tolist() == [1, 2]
    assert any("not been tested on a real dump" in text for text in trace.warnings)
    write_slices(trace, tmp_path / "out.json", "chrome")
    assert answer_of(tmp_path / "out.json").findings[0].kind == "incomplete-collective"


def test_the_report_says_that_the_job_hangs(tmp_path: Path) -> None:
    trace = open_trace(write(tmp_path, [WAITING, [entry(1)]]))
    answer = why(trace, job_metadata_of(trace))
    assert "the job hangs" in page(trace, answer, measure(trace), title="t")
    assert json.loads(json.dumps(answer.document(), allow_nan=False))["findings"]


def test_what_is_to_be_said_of_all_files_is_said_once(tmp_path: Path) -> None:
    (told,) = open_trace(write(tmp_path, [WAITING] * 3)).warnings
    assert told.startswith(
        f"3 files in {tmp_path}: experimental: this reader follows PyTorch's source"
    )


class _Bomb:
    def __init__(self, path: Path) -> None:
        self._path = str(path)

    def __reduce__(self):  # type: ignore[no-untyped-def]
        return os.mkdir, (self._path,)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_what_a_pickle_names_is_not_run(tmp_path: Path, protocol: int) -> None:
    bomb = dump([entry(1)], 1) | {"more": _Bomb(tmp_path / "made")}
    path = tmp_path / "nccl_trace_rank_0"
    path.write_bytes(pickle.dumps(bomb, protocol=protocol))
    with pytest.raises(TraceFormatError, match="which may run code when read"):
        open_trace(path)
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_plain_values_are_read_as_pickle_does(protocol: int) -> None:
    value = {"a": [1, -5, 2**70, 1.5, None, True, False, "ä", ("x", 1), (1, 2, 3, 4), ()], 3: {}}
    value["again"] = value["a"]
    assert plain_pickle.read(pickle.dumps(value, protocol=protocol)).value == value


@pytest.mark.parametrize("form", ["pickle", "json"])
def test_a_dump_that_is_cut_off_has_its_whole_entries(tmp_path: Path, form: str) -> None:
    write(tmp_path, [[entry(number) for number in range(50)]], form)
    path = tmp_path / "nccl_trace_rank_0"
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    trace = open_trace(path)
    assert 10 < len(trace.slices) < 50
    assert any("damaged or cut off" in text for text in trace.warnings)


def test_no_cut_of_a_dump_raises_anything_else(tmp_path: Path) -> None:
    whole = pickle.dumps(dump(WAITING, 2), protocol=2)
    path = tmp_path / "nccl_trace_rank_0"
    for length in range(2, len(whole), 7):
        path.write_bytes(whole[:length])
        try:
            open_trace(path)
        except TraceFormatError:
            continue


def test_a_damaged_entry_is_counted(tmp_path: Path) -> None:
    write(tmp_path, [[entry(1), entry(2, state="gone"), {"x": 1}, entry(3, time_created_ns=-1)]])
    trace = open_trace(tmp_path)
    assert len(trace.slices) == 1
    assert any("3 entries are damaged" in text for text in trace.warnings)


def test_of_a_dictionary_that_is_not_whole_the_texts_are_kept() -> None:
    data = pickle.dumps({"a": [1, 2], (1,): 3}, protocol=2)
    assert plain_pickle.read(data[: data.rindex(b"u.")]).value == {"a": [1, 2]}
