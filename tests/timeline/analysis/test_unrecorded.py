"""What a trace does not record is not known: nothing is computed from it, and nobody is named."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hvdtune.timeline import Trace, open_trace
from hvdtune.timeline.analysis import compare, report
from hvdtune.timeline.analysis.findings import Answer, why
from hvdtune.timeline.analysis.metrics import breakdown, stragglers
from hvdtune.timeline.analysis.phases import summary
from hvdtune.timeline.analysis.quantities import measure
from hvdtune.timeline.analysis.recorded import says_of
from hvdtune.timeline.analysis.steps import steps_of
from hvdtune.timeline.model.job_metadata import job_metadata_of
from hvdtune.timeline.model.schema import KIND_NAMES
from tests.kit.horovod_timeline import STEP_US, write_horovod_timeline
from tests.kit.synthetic import Recorder, Training
from tests.kit.traces import KINETO, event, write

WAITING = ("blocked_ms", "wait_ms", "exposed_ms", "communicate_ms", "compute_ms")


def answer(trace: Trace) -> Answer:
    return why(trace, job_metadata_of(trace))


def write_profiles(
    folder: Path, steps: Sequence[int] = range(3, 15), hosts: Sequence[str] = ()
) -> list[Path]:
    """Recordings of torch.profiler of two ranks whose collectives it does not see."""
    paths = []
    for rank in range(2):
        rows = [
            row
            for n in steps
            for row in (
                event("X", n * STEP_US, f"ProfilerStep#{n}", dur=STEP_US, cat="user_annotation"),
                event("X", n * STEP_US + 100, "aten::mm", dur=4_000, cat="cpu_op"),
            )
        ]
        path = folder / f"rank{rank}.json"
        info = {"rank": rank, "world_size": 2, "backend": "gloo"}
        around = {"host_name": hosts[rank]} if hosts else {}
        around |= {"distributedInfo": info, "baseTimeNanoseconds": 0}
        paths.append(write(path, *rows, **around))
    return paths


@pytest.fixture
def profiles(tmp_path: Path) -> Trace:
    write_profiles(tmp_path)
    return open_trace(tmp_path)


def test_ranks_without_recorded_collectives_are_not_said_to_wait_for_nothing(profiles):
    steps = steps_of(profiles)
    assert steps["rank"].nunique() == 2 and steps["step_ms"].notna().all()
    assert steps[list(WAITING)].isna().all(axis=None)
    values = measure(steps)
    assert all(np.isnan(values[key]) for key in ("waiting", "busy-time", "communicating"))
    assert "communicate_percent" not in summary(profiles)
    assert breakdown.sentence(steps).endswith("its parts are unknown.")
    assert stragglers.table(steps).empty


def test_ranks_without_recorded_collectives_name_nobody_and_say_what_to_record(profiles):
    said = answer(profiles)
    assert said.missing == (
        "no collectives of the ranks in this trace are recorded, so the waits of these ranks are "
        "not known",
    )
    (note,) = said.notes
    assert (
        "torch.profiler does not record collectives of hvdtune" in note
        and "--timeline-filename" in note
    )
    told = report.measure(profiles)
    for name in ("efficiency", "critical_path", "stragglers", "overlap"):
        assert told[name].table.empty and "the waits of these ranks" in told[name].summary
    page = report.page(profiles, said, told, "x")
    assert "There was no communication" not in page
    assert page.count("orch.profiler does not record collectives") == 1


def test_a_profile_alone_without_collectives_is_told_what_does_not_see_them(tmp_path):
    # It does not say how large its job is.
    rows = (
        event("X", n * STEP_US, f"ProfilerStep#{n}", dur=STEP_US, cat="user_annotation")
        for n in range(3, 15)
    )
    said = answer(open_trace(write(tmp_path / "rank0.json", *rows, deviceProperties=[])))
    assert said.missing[0].startswith("no collectives of the ranks in this trace")
    assert "torch.profiler does not record collectives" in said.notes[-1]


LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def write_single(path: Path, input_us: int, computes_us: int = 500, **around: Any) -> Path:
    """A recording of torch.profiler of one process, whose steps wait so long for input."""
    rows = [
        row
        for n in range(3, 15)
        for row in (
            event("X", n * STEP_US, f"ProfilerStep#{n}", dur=STEP_US, cat="user_annotation"),
            event("X", n * STEP_US + 50, LOADER, dur=input_us, cat="user_annotation"),
            event("X", n * STEP_US + 100 + input_us, "aten::mm", dur=computes_us, cat="cpu_op"),
        )
    ]
    return write(path, *rows, deviceProperties=[], **around)


def test_a_single_process_is_one_rank_whose_waits_for_input_are_found(tmp_path):
    trace = open_trace(write_single(tmp_path / "trace.json", STEP_US // 2))
    assert {*trace.slices["rank"]} == {*trace.events["rank"]} == {*trace.ranks} == {0}
    steps = steps_of(trace)
    assert steps["input_ms"].tolist() == pytest.approx([STEP_US / 2_000] * len(steps))
    assert steps[list(WAITING)].isna().all(axis=None)
    said = answer(trace)
    (found,) = said.findings
    assert (found.kind, found.summary) == ("slow-input", "rank 0 waits for input")
    assert found.cost.mean == pytest.approx(STEP_US / 2_000)
    assert found.evidence[0] == f"mean: {STEP_US / 2_000:.2f} ms per step (input)"
    assert "so only waiting for input was checked" in said.notes[0]
    assert "any time spent waiting for other ranks is unknown" in said.notes


def test_a_single_process_that_hardly_waits_for_input_has_no_bottleneck(tmp_path):
    for share, verdict in ((0.9, "nothing"), (0.3, "unexplained")):
        path = write_single(tmp_path / "trace.json", STEP_US // 100, round(share * STEP_US))
        said = answer(open_trace(path))
        assert said.verdict == verdict and "only waiting for input" in said.notes[0]
        assert said.explained_percent == pytest.approx(100 * share, abs=2)


def test_a_process_that_says_that_it_is_alone_waits_for_nobody(tmp_path):
    info = {"rank": 0, "world_size": 1, "backend": "gloo"}
    path = write_single(tmp_path / "trace.json", STEP_US // 2, distributedInfo=info)
    steps = steps_of(open_trace(path))
    assert (steps["blocked_ms"] == 0).all() and (steps["wait_ms"] == 0).all()


def test_waiting_for_input_is_compared_where_nothing_but_one_process_is_recorded(tmp_path):
    few, many = (write_single(tmp_path / f"{us}.json", us) for us in (100, STEP_US // 2))
    table = compare.table(open_trace(few), open_trace(many)).set_index("quantity")
    assert table["change_ms"]["input"] == pytest.approx((STEP_US / 2 - 100) / 1_000)
    assert np.isnan(table["change_ms"].get("compute", np.nan))


@pytest.mark.parametrize(
    "rows", [[], [event("X", 1, "f", dur=2)]], ids=["empty", "unknown program"]
)
def test_what_torch_profiler_does_not_see_is_said_of_its_recordings_alone(tmp_path, rows):
    trace = open_trace(write(tmp_path / "trace.json", *rows))
    for name in ("tensors", "bandwidth"):
        assert says_of(trace, name) == "No collectives are recorded in this trace."
    page = report.page(trace, answer(trace), report.measure(trace), "x")
    assert "torch.profiler" not in page


def test_a_rank_alone_is_not_said_to_wait_for_buckets():
    (path, *_) = sorted(KINETO.glob("*rank0*"))
    trace = open_trace(path)
    steps = steps_of(trace)
    assert steps["blocked_ms"].notna().all()
    assert steps[["wait_ms", "exposed_ms", "communicate_ms"]].isna().all(axis=None)
    assert "waiting for communication (for unknown reasons)" in breakdown.sentence(steps)
    told = report.measure(trace)
    assert all(told[name].table.empty for name in ("efficiency", "critical_path", "overlap"))
    both = steps_of(open_trace(KINETO))
    assert both[["wait_ms", "exposed_ms"]].notna().all(axis=None)


def test_ranks_that_are_there_are_compared_where_others_are_not_but_not_what_they_cost():
    whole = Training([10.0, 13.0, 11.0]).trace()
    events = whole.events[whole.events["rank"] < 2]
    steps = steps_of(Trace(events, whole.meta))
    assert steps[["wait_ms", "negotiate_ms"]].isna().all(axis=None)
    assert steps[["blocked_ms", "exposed_ms"]].notna().all(axis=None)
    said = stragglers.sentence(stragglers.table(steps))
    assert "rank 1 is busy longest in 100 % of steps" in said and "is not known" in said


def test_a_rank_whose_steps_are_missing_makes_the_answer_incomplete():
    whole = Training([10.0, 13.0]).trace()
    gone = (whole.events["kind"] == "STEP") & (whole.events["rank"] == 1)
    found = answer(Trace(whole.events[~gone], whole.meta))
    assert (found.verdict, found.findings) == ("incomplete", ())
    assert found.missing == ("steps of rank 1 are missing, so waits between ranks are unknown",)
    assert answer(whole).verdict == "found"


def test_steps_that_recur_are_compared_and_their_first_ones_left_out(tmp_path):
    trace = open_trace(write_horovod_timeline(tmp_path / "trace.json", 60, [0, 5_000]))
    steps = steps_of(trace)
    marks = Recorder(
        [(0, KIND_NAMES.index("STEP"), 0, n, n + 1, n, 0, 0) for n in range(59)]
    ).trace(1)
    assert steps["step"].tolist() == steps_of(marks)["step"].tolist()
    table = compare.table(trace, trace)
    known = table.set_index("quantity")["a_ms"].dropna()
    assert known.to_dict() == {"step": pytest.approx(STEP_US / 1000)}


def test_a_timeline_of_horovod_with_profiles_beside_it_has_the_steps_of_all_ranks(tmp_path):
    write_profiles(tmp_path)
    write_horovod_timeline(tmp_path / "horovod.json", 40, [0, 5_000])
    trace = open_trace(tmp_path)
    steps = steps_of(trace)
    assert set(steps["rank"]) == {0, 1} and steps["wait_ms"].isna().all()
    found = answer(trace)
    assert (found.steps, found.step_ms) == (steps["step"].nunique(), steps["step_ms"].mean())
    (finding,) = found.findings
    assert finding.ranks == (1,)
    assert "in torch.profiler's recording" in finding.remedy
    assert "ms (mean)" not in " ".join(found.notes)


def test_what_other_ranks_wait_for_is_not_told_of_a_timeline_of_horovods(tmp_path):
    path = write_horovod_timeline(tmp_path / "trace.json", 40, [0, 5_000])
    trace = open_trace(path)
    told = report.measure(trace)
    assert told["queueing"].table.empty and "are not known" in told["queueing"].summary
    page = report.page(trace, answer(trace), told, "trace.json")
    assert ">-1<" not in page
