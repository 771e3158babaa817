"""Databases of nsys and rocprofv3, made by their documented schemas."""

from pathlib import Path

import pytest

from hvdtune.errors import TraceFormatError
from hvdtune.timeline import open_trace, write_slices
from hvdtune.timeline.analysis.findings.why import why
from hvdtune.timeline.analysis.metrics import breakdown, gpu
from hvdtune.timeline.analysis.overview import overview
from hvdtune.timeline.model.job_metadata import job_metadata_of
from hvdtune.timeline.reading import cache
from hvdtune.timeline.reading.opening import open_light
from tests.kit import gpu_databases
from tests.kit.gpu_databases import NCCL, of_process
from tests.kit.traces import rows


def kinds_of(trace):
    return trace.slices["kind"].astype(str).value_counts().to_dict()


def test_an_export_of_nsys_has_kernels_copies_calls_and_ranges(tmp_path: Path) -> None:
    trace = open_trace(gpu_databases.nsys(tmp_path / "report.sqlite", {300: 0}))
    assert kinds_of(trace) == {"COMPUTE": 10, "ALLREDUCE": 10, "COPY": 10, "STEP": 10, "": 10}
    steps = trace.slices[trace.slices["kind"] == "STEP"]
    assert sorted(steps["seq"]) == list(range(10))
    call = trace.slices[trace.slices["name"] == "cudaLaunchKernel"].iloc[0]
    assert (call["process"], call["thread"]) == ("python3 (300)", "pt_main_thread")
    kernel = trace.slices[trace.slices["name"] == NCCL].iloc[0]
    assert (kernel["process"], kernel["thread"]) == ("GPU 0 of python3 (300)", "stream 20")
    copy = trace.slices[trace.slices["kind"] == "COPY"].iloc[0]
    assert (copy["name"], copy["bytes"]) == ("Memcpy HtoD", 4096)
    assert trace.files[0].format == "nsys"
    assert trace.origin_unix_ns == 10**18
    assert any("not been tested on a real recording" in text for text in trace.warnings)


@pytest.mark.parametrize("read", [open_trace, open_light])
def test_the_gpu_is_told_of_as_in_a_recording_of_torch_profiler(tmp_path: Path, read) -> None:  # type: ignore[no-untyped-def]
    trace = read(gpu_databases.nsys(tmp_path / "report.sqlite", {300: 0}))
    (row,) = gpu.table(trace, breakdown.steady_steps(trace)).to_dict("records")
    assert row["kernels_percent"] == pytest.approx(20)
    assert row["alone_percent"] == pytest.approx(38)
    assert row["copies_percent"] == pytest.approx(1)


def test_a_late_rank_is_found_among_files(tmp_path: Path) -> None:
    for rank in range(3):
        path = tmp_path / f"job_rank{rank}.sqlite"
        gpu_databases.nsys(path, {300 + rank: 0}, late_us=200, late_pid=302)
    trace = open_trace(tmp_path)
    assert sorted(set(trace.slices["rank"])) == [0, 1, 2]
    answer = why(trace, job_metadata_of(trace))
    (slow,) = [found for found in answer.findings if found.ranks]
    assert (slow.kind, slow.ranks) == ("slow-compute", (2,))
    assert slow.cost.mean == pytest.approx(0.2)


def test_processes_of_one_report_are_ranks_in_the_order_of_their_gpus(tmp_path: Path) -> None:
    trace = open_trace(gpu_databases.nsys(tmp_path / "r.sqlite", {301: 1, 302: 0}))
    named = trace.slices.groupby("rank")["process"].first().astype(str).to_dict()
    assert "302" in named[0]
    assert "301" in named[1]
    assert any("numbered by their GPUs" in text for text in trace.warnings)
    # Their n-th collectives are one.
    reduced = trace.slices[trace.slices["kind"] == "ALLREDUCE"]
    assert reduced.groupby("seq").size().tolist() == [2] * 10


@pytest.mark.parametrize(
    "more",
    [
        {"MPI_RANKS": [(of_process(301) | 301, 5), (of_process(302) | 302, 4)]},
        {
            "NVTX_EVENTS": [
                (5, 6, 59, None, None, "load rank=5", of_process(301) | 301, None, 0),
                (5, None, 34, None, None, "rank 4", of_process(302) | 302, None, 0),
            ]
        },
    ],
    ids=["MPI", "ranges"],
)
def test_ranks_are_those_that_the_report_tells(tmp_path: Path, more) -> None:  # type: ignore[no-untyped-def]
    trace = open_trace(gpu_databases.nsys(tmp_path / "r.sqlite", {301: 1, 302: 0}, **more))
    assert set(trace.slices.loc[trace.slices["pid"] == "301 GPU 1", "rank"]) == {5}
    assert set(trace.slices.loc[trace.slices["pid"] == "302 GPU 0", "rank"]) == {4}


def test_a_database_of_rocprofv3_is_read(tmp_path: Path) -> None:
    trace = open_trace(gpu_databases.rocpd(tmp_path / "results.db", rank=3))
    assert kinds_of(trace) == {"COMPUTE": 1, "ALLREDUCE": 1, "COPY": 1, "STEP": 1, "": 1}
    assert set(trace.slices["rank"]) == {3}
    assert set(trace.slices["process"].astype(str)) == {
        "agent 2 of python3 (4711)",
        "python3 (4711)",
    }
    (told,) = [text for text in trace.warnings if "rocpd_memory_allocate_1" in text]
    assert "1 row of table" in told


def test_rows_that_are_not_shown_are_counted(tmp_path: Path) -> None:
    wrong = [(50, 40, 0, 1, 7, 1, of_process(300), 0, 0), ("x", "y", 0, 1, 7, 1, 0, 0, 0)]
    path = gpu_databases.nsys(
        tmp_path / "r.sqlite",
        {300: 0},
        CUPTI_ACTIVITY_KIND_KERNEL=wrong,
        OSRT_API=[(1, 2, 0)] * 3,
        NVTX_EVENTS=[(500, None, 60, 1, None, "never ended", of_process(300) | 300, None, 0)],
    )
    trace = open_trace(path)
    assert any("3 rows of table OSRT_API" in text for text in trace.warnings)
    assert any("1 slice ends before it begins" in text for text in trace.warnings)
    (row,) = trace.slices[trace.slices["open"]].to_dict("records")
    assert row["name"] == "never ended"
    assert row["end_ns"] + trace.origin_unix_ns - 10**18 == 10_000_000


def test_a_damaged_page_costs_the_rows_that_are_on_it(tmp_path: Path) -> None:
    rows = [(at, at + 1, 0, 1, 7, at, of_process(300), 0, 0) for at in range(20_000)]
    path = gpu_databases.nsys(tmp_path / "r.sqlite", {300: 0}, CUPTI_ACTIVITY_KIND_KERNEL=rows)
    data = bytearray(path.read_bytes())
    middle = len(data) // 2 // 4096 * 4096
    data[middle : middle + 4096] = b"\xff" * 4096
    path.write_bytes(data)
    trace = open_trace(path)
    assert 19_000 < len(trace.slices) < 20_050
    assert any("cannot be read from row" in text for text in trace.warnings)


@pytest.mark.parametrize("content", [b"SQLite format 3\0" + b"\xff" * 5000, b"SQLite format 3\0"])
def test_a_ruined_database_is_refused_in_a_sentence(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "r.sqlite"
    path.write_bytes(content)
    with pytest.raises(TraceFormatError, match=r"r\.sqlite: no SQLite database, or damaged"):
        open_trace(path)


def test_a_schema_that_is_damaged_is_refused_in_a_sentence(tmp_path: Path) -> None:
    path = gpu_databases.nsys(tmp_path / "r.sqlite", {300: 0})
    path.write_bytes(
        path.read_bytes().replace(b"CREATE TABLE OSRT_API", b"CREATE \xb4ABLE OSRT_API")
    )
    with pytest.raises(TraceFormatError, match="its tables cannot be listed"):
        open_trace(path)


def test_another_database_is_refused(tmp_path: Path) -> None:
    path = gpu_databases.filled(tmp_path / "a.db", "CREATE TABLE trials (start INTEGER);", {})
    with pytest.raises(TraceFormatError, match="not an nsys SQLite export"):
        open_trace(path)


def test_a_report_has_to_be_exported_first(tmp_path: Path) -> None:
    path = tmp_path / "a.nsys-rep"
    path.write_bytes(b"\x01report")
    with pytest.raises(TraceFormatError, match="nsys export --type sqlite"):
        open_trace(path)


def test_reading_leaves_the_database_as_it_was_and_nothing_beside_it(tmp_path: Path) -> None:
    path = gpu_databases.nsys(tmp_path / "r ?#%41.sqlite", {300: 0})
    before = path.read_bytes()
    open_trace(path)
    assert path.read_bytes() == before
    assert [*tmp_path.iterdir()] == [path]


def test_views_and_triggers_of_the_file_are_not_run(tmp_path: Path) -> None:
    schema = gpu_databases.NSYS.replace("CREATE TABLE OSRT_API", "CREATE TABLE OTHER")
    schema += "CREATE VIEW OSRT_API AS SELECT load_extension('x') AS start;"
    tables = {"CUPTI_ACTIVITY_KIND_KERNEL": [(1, 2, 0, 1, 7, 1, 0, 0, 0)]}
    trace = open_trace(gpu_databases.filled(tmp_path / "r.sqlite", schema, tables))
    assert len(trace.slices) == 1
    assert not any("OSRT_API" in text for text in trace.warnings)


def test_a_database_is_the_same_through_its_cache_and_through_an_export(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = gpu_databases.nsys(tmp_path / "r.sqlite", {301: 1, 302: 0})
    plain = open_trace(path)
    write_slices(plain, tmp_path / "out.json", "chrome")
    again = open_trace(tmp_path / "out.json")
    assert rows(again) == rows(plain)
    assert again.files[0].format == "nsys"
    monkeypatch.setattr(cache, "MIN_BYTES", 0)
    assert rows(open_trace(path)) == rows(plain)
    assert cache.cache_path(path).exists()
    told = overview([path])
    assert sum(file.statistics.slices for file in told.files) == len(plain.slices)
    assert {row.rank for row in told.kinds()} == {0, 1}
