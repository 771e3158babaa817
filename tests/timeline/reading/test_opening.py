import gzip
import shutil
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from hvdtune.errors import TraceFormatError, UsageError
from hvdtune.timeline import (
    load,
    merge,
    open_trace,
    read,
    summary,
    write_chrome,
    write_slices,
)
from hvdtune.timeline.analysis.findings import why
from hvdtune.timeline.model.duplicate_ranks import files_of_ranks, in_two_files
from hvdtune.timeline.model.job_metadata import job_metadata_of
from hvdtune.timeline.model.slices import COLUMNS
from hvdtune.timeline.reading.folders import find
from tests.kit import gpu_recordings
from tests.kit import rank_files as files
from tests.kit.horovod_timeline import STEP_US, write_horovod_timeline
from tests.kit.synthetic import Training
from tests.kit.traces import ALL, KINETO, SPEEDSCOPE, event, rows, write


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.name)
def test_every_trace_opens_and_every_event_is_shown_or_told(path):
    model = load(path)
    for phase, numbers in model.counts.items():
        assert numbers["read"] == numbers["shown"] + numbers["reported"], phase
    if any(numbers["reported"] for numbers in model.counts.values()):
        assert model.warnings
    assert list(model.slices.columns) == list(COLUMNS)
    for name, dtype in COLUMNS.items():
        assert str(model.slices[name].dtype) == dtype, name


def test_a_trace_of_hvdtune_s_without_its_head_is_not_taken_for_another_program_s(tmp_path):
    whole, rest = tmp_path / "whole.json", tmp_path / "rest.json"
    write_chrome(Training([10.0, 14.0]).trace(), whole)
    text = whole.read_text()
    rest.write_text(text[text.index("}", len(text) // 4) :])
    trace = open_trace(rest)
    assert [file.format for file in trace.files] == ["hvdtune-json"]
    assert any("the beginning of this hvdtune trace is lost" in said for said in trace.warnings)
    steps = trace.events[trace.events["kind"] == "STEP"]
    assert steps["rank"].value_counts().to_dict().keys() == {0, 1}
    reduced = trace.events[trace.events["kind"] == "ALLREDUCE"]
    assert reduced["name"].nunique() == 4
    assert {name.rpartition(" ")[0] for name in reduced["name"].unique()} == {"tensor of row"}


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.name)
def test_slices_are_in_order_and_begin_at_0(path):
    slices = load(path).slices
    begin, end = slices["begin_ns"].to_numpy(), slices["end_ns"].to_numpy()
    assert (np.diff(begin) >= 0).all()
    assert (end >= begin).all()
    assert len(begin) == 0 or begin[0] == 0


def test_the_format_is_found_by_content(tmp_path):
    source = files.GOLDEN / "rank-0.hvt"
    misnamed = shutil.copy(source, tmp_path / "trace.json")
    assert [file.format for file in load(misnamed).files] == ["hvdtune"]
    packed = tmp_path / "trace.txt"
    packed.write_bytes(gzip.compress((SPEEDSCOPE / "simple.json").read_bytes()))
    assert len(load(packed).slices) == 4


def test_own_files_and_their_export_are_the_same_model():
    one = load(files.GOLDEN / "rank-0.hvt")
    other = load(files.GOLDEN / "trace.json")
    assert rows(one) == rows(other)
    assert one.ranks == other.ranks
    assert one.origin_unix_ns == other.origin_unix_ns


def test_what_is_read_of_a_foreign_trace_can_be_measured():
    trace = read(KINETO.parent / "horovod" / "horovod_resnet50_np2_cycles_fusion0.json.gz")
    assert "READY" in set(trace.others.rows["kind"])
    assert summary(trace)["ranks"] == 1


def test_the_files_of_a_zip_are_ranks(tmp_path):
    path = tmp_path / "traces.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(KINETO.iterdir()):
            archive.write(file, file.name)
    assert rows(load(path)) == rows(load(KINETO))


@pytest.mark.parametrize(
    ("names", "ranks", "said"),
    [
        pytest.param(
            ["rank3", "rank1"],
            [3, 1],
            "clock unknown; times are not aligned",
            id="have names that do",
        ),
        pytest.param(
            ["a", "b"], [0, 1], "numbered in the order of the file names", id="are numbered"
        ),
        pytest.param("abcde", range(5), "5 files in {folder}: no rank recorded", id="are many"),
    ],
)
def test_files_that_do_not_say_their_rank(tmp_path, names, ranks, said):
    for number, name in enumerate(names):
        write(tmp_path / f"{name}.json", event("i", 5 + 2 * number))
    slices, warnings = load(tmp_path).slices, load(tmp_path).warnings
    begins = dict(zip(slices["rank"], slices["begin_ns"], strict=True))
    assert begins == {rank: 2000 * number for number, rank in enumerate(ranks)}
    assert said.format(folder=tmp_path) in warnings[0]


def test_other_files_of_a_folder_are_passed_over(tmp_path):
    write(tmp_path / "trace-of-1.json", event("i", 5))
    (tmp_path / "notes.txt").write_text("hello")
    (tmp_path / "verdict.json").write_text('{"gain": 1}')
    (tmp_path / "numbers.json").write_text('[1, {"a": 2}]')
    (tmp_path / "nothing.json").write_text("[]")
    (tmp_path / "log.gz").write_bytes(gzip.compress(b"started"))
    model = load(tmp_path)
    assert len(model.slices) == 1
    assert [Path(file.path).name for file in model.files] == ["trace-of-1.json"]
    assert model.warnings == []


def test_traces_beside_the_recordings_of_ranks_are_told_of(tmp_path):
    gpu_recordings.write_timelines(tmp_path)
    assert find([tmp_path]).notes == []
    gpu_recordings.write_profiles(tmp_path, collectives=False)
    (told,) = find([tmp_path]).notes
    assert "profile_rank0.json, profile_rank1.json" in told
    assert find(sorted(tmp_path.glob("*.*"))).notes == []


def test_a_trace_of_a_folder_that_cannot_be_read_is_told(tmp_path):
    write(tmp_path / "rank0.json", event("i", 5))
    (tmp_path / "rank1.json").write_text('{"traceEvents":[{"ph":"X","ts"')
    assert "rank1.json" in load(tmp_path).warnings[0]


@pytest.mark.parametrize(
    "texts",
    [
        pytest.param({"verdict.json": '{"gain": 1}', "config.json": "{}"}, id="other JSON"),
        pytest.param({"notes.txt": "hello"}, id="notes"),
        pytest.param({}, id="nothing"),
    ],
)
def test_a_folder_without_a_trace_is_a_usage_error(tmp_path, texts):
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(UsageError, match=f"^{tmp_path} holds no trace$"):
        load(tmp_path)


def test_a_run_folder_is_its_trace(tmp_path):
    (tmp_path / "ranks").mkdir()
    items = [files.record("STEP", 10, 20)]
    for rank in (0, 1):
        files.rank_file(tmp_path / "ranks", rank, items, size=2)
    assert set(load(tmp_path).slices["rank"]) == {0, 1}
    shutil.copy(files.GOLDEN / "trace.json", tmp_path / "trace.json")
    assert [file.format for file in load(tmp_path).files] == ["hvdtune-json"]


def launch_of(folder, launch, *ranks, job=0):
    place = folder / "ranks" / f"launch-{launch}"
    place.mkdir(parents=True, exist_ok=True)
    for rank in ranks:
        path = files.rank_file(place, rank, [files.record("STEP", 10, 20)], size=len(ranks))
        if job:
            path.rename(path.with_name(f"rank-{rank}-job{job}.hvt"))


@pytest.mark.parametrize("of_it", [".", "ranks", "ranks/launch-0"])
def test_a_run_folder_without_a_merged_trace_is_that_of_its_ranks(tmp_path, of_it):
    (tmp_path / "run.json").write_text('{"v": 1, "command": ["train.py"]}')
    launch_of(tmp_path, 0, 0, 1)
    model = load(tmp_path / of_it)
    assert set(model.slices["rank"]) == {0, 1}
    assert model.warnings == []


@pytest.mark.parametrize(
    ("launches", "ranks", "said"),
    [
        pytest.param(
            [(2, 2, 0), (9, 9, 0), (10, 10, 0), (11, 0, 0)],
            10,
            "has traces of 3 launches; showing the newest, launch-10.",
            id="launches",
        ),
        pytest.param(
            [(0, 3, 1), (0, 2, 0)],
            3,
            "has traces of 2 jobs; showing the newest, job 1.",
            id="jobs of a launch",
        ),
    ],
)
def test_of_several_the_newest_is_opened_and_named(tmp_path, launches, ranks, said):
    (tmp_path / "run.json").write_text("{}")
    for launch, size, job in launches:
        launch_of(tmp_path, launch, *range(size), job=job)
    model = load(tmp_path)
    assert set(model.slices["rank"]) == set(range(ranks))
    assert said in model.warnings[0]


PACKED = (KINETO / "kineto_ddp_mlp_np2_rank0.json.gz").read_bytes()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        pytest.param(PACKED[:17_000], "cut off at byte 17000", id="cut early"),
        pytest.param(PACKED[:52_000], "cut off at byte 52000", id="cut late"),
        pytest.param(
            PACKED[:20_000] + bytes(10) + PACKED[20_010:],
            "compressed data are damaged at byte ",
            id="damaged",
        ),
    ],
)
def test_a_damaged_packed_trace_gives_what_comes_before(tmp_path, content, said):
    model = load(files.write(tmp_path / "damaged.json.gz", content))
    assert 100 < len(model.slices) < 2915
    assert said in model.warnings[0]


SIMPLE = (SPEEDSCOPE / "simple.json").read_bytes()


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param([gzip.compress(gzip.compress(SIMPLE))], id="twice"),
        pytest.param(
            [gzip.compress(SIMPLE[:100]), gzip.compress(SIMPLE[100:]), b"\0" * 512], id="in pieces"
        ),
    ],
)
def test_a_trace_may_be_packed(tmp_path, parts):
    model = load(files.write(tmp_path / "packed.json.gz", *parts))
    assert rows(model) == rows(load(SPEEDSCOPE / "simple.json"))
    assert model.warnings == []


@pytest.mark.parametrize("opener", [load, read])
@pytest.mark.parametrize(
    ("name", "said"),
    [
        pytest.param("empty.json", r"empty\.json: the file is empty$", id="empty"),
        pytest.param("none.json", r"cannot read .*none\.json: No such file", id="none"),
        pytest.param("none.hvt", r"cannot read .*none\.hvt: No such file", id="no recording"),
    ],
)
def test_a_file_without_anything_is_one_line_of_error(tmp_path, opener, name, said):
    (tmp_path / "empty.json").touch()
    with pytest.raises(TraceFormatError, match=said):
        opener(tmp_path / name)


def test_a_trace_without_events_opens(tmp_path):
    (tmp_path / "a.json").write_text("[]")
    model = load(tmp_path / "a.json")
    assert list(model.slices.columns) == list(COLUMNS)
    assert (len(model.slices), model.warnings) == (0, [])
    assert len(load(tmp_path).slices) == 0


@pytest.mark.parametrize("name", ["trace.json.gz", "trace.zip", "trace.parquet", "trace.hvt"])
def test_damaged_containers_are_one_line_of_error(tmp_path, name):
    begin = {"gz": b"\x1f\x8b", "zip": b"PK\x03\x04", "parquet": b"PAR1", "hvt": b"HVDTRACE"}
    path = tmp_path / name
    path.write_bytes(begin[name.rsplit(".", 1)[1]] + zlib.compress(b"nonsense" * 100))
    with pytest.raises(TraceFormatError) as caught:
        load(path)
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.offset >= 0


def test_own_files_and_others_may_be_opened_together(tmp_path):
    files.rank_file(tmp_path, 0, [files.record("STEP", 10, 20)])
    write(tmp_path / "rank1.json", event("X", 5, dur=3))
    model = load(tmp_path.iterdir())
    assert {file.format for file in model.files} == {"hvdtune", "chrome"}
    assert merge([tmp_path / "rank-0.hvt"]).events["kind"].tolist() == ["STEP"]


def test_a_job_that_horovod_and_a_profiler_recorded_is_one_before_and_after_a_merge(tmp_path):
    folder = tmp_path / "job"
    folder.mkdir()
    write_horovod_timeline(folder / "horovod.json", 40, [0, 5_000])
    for rank in range(2):
        steps = [
            event("X", STEP_US * step, f"ProfilerStep#{step}", dur=STEP_US, cat="user_annotation")
            for step in range(1, 40)
        ]
        reduced = event("X", 5, "nccl:all_reduce", dur=9, cat="kernel")
        work = event("X", 10, "aten::mm", dur=5, cat="cpu_op")
        info = {"rank": rank, "world_size": 2}
        write(folder / f"rank{rank}.json", *steps, reduced, work, distributedInfo=info)
    trace = open_trace(folder)
    assert in_two_files(files_of_ranks(trace)) == []
    kinds = trace.events.groupby(["rank", "kind"], observed=True).size()
    # The collectives are Horovod's, of rank 0 alone, and the steps the profiler's.
    assert kinds[0]["ALLREDUCE"] == 160 and kinds[0]["NEGOTIATE"] == 160
    assert kinds[1].to_dict() == {"STEP": 39}
    (found,) = why(trace, job_metadata_of(trace)).findings
    assert (found.kind, found.ranks) == ("late-rank", (1,))
    write_slices(trace, tmp_path / "merged.json", "chrome")
    merged = open_trace(tmp_path / "merged.json")
    assert rows(merged, args=False) == rows(trace, args=False)
    assert merged.events.equals(trace.events)


def test_a_parquet_file_whose_slices_end_before_they_begin_is_damaged(tmp_path):
    path = tmp_path / "trace.parquet"
    write_slices(Training([10.0, 14.0]).trace(), path, "parquet")
    table = pq.read_table(path)
    place = table.schema.get_field_index("end_ns")
    ends = pc.subtract(table["begin_ns"], 1)
    pq.write_table(table.set_column(place, table.schema.field(place), ends), path)
    with pytest.raises(TraceFormatError, match="of its slices end before they begin"):
        open_trace(path)
