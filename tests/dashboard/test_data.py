import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hvdtune.dashboard.blocks import sentences
from hvdtune.dashboard.critical_path import path_within
from hvdtune.dashboard.data import RunView, hosts_of, open_run
from hvdtune.dashboard.evidence import evidence_of
from hvdtune.dashboard.pages import overview, ranks, tensors
from hvdtune.dashboard.shell import PageAddress
from hvdtune.dashboard.tiles import TileWindow
from hvdtune.errors import TraceFormatError, UsageError
from hvdtune.timeline import write_chrome
from hvdtune.timeline.analysis.metrics import breakdown, critical_path
from tests.kit.flight_recorder import entry
from tests.kit.flight_recorder import write as write_dumps
from tests.kit.horovod_timeline import write_horovod_timeline
from tests.kit.synthetic import Training

from .decode import decode
from .studies import write_study
from .synthetic import HOSTILE, training_trace

GOLDEN = Path(__file__).parents[1] / "golden" / "timeline"
TRACES = Path(__file__).parents[1] / "timeline" / "data"


def test_tensors_ranks_and_hosts_are_named():
    run = RunView("run", training_trace(ranks=3, tensors=4))
    assert run.tensors[0] == "model.layer0.weight"
    assert HOSTILE in run.tensors
    assert run.ranks == [0, 1, 2]
    assert hosts_of(run.trace) == ["node-0", "node-1", "node-2"]


def test_parts_of_a_run_are_computed_one_at_a_time(monkeypatch):
    run = RunView("run", training_trace(ranks=2, tensors=4))
    steady_steps, others_may = breakdown.steady_steps, []

    def steps(trace):
        with ThreadPoolExecutor(1) as pool:
            others_may.append(pool.submit(run.computing.acquire, blocking=False).result())
        return steady_steps(trace)

    monkeypatch.setattr(breakdown, "steady_steps", steps)
    assert run.steps is run.steps
    assert others_may == [False]


def test_the_critical_path_is_through_the_ranks_that_stats_names(monkeypatch):
    run = RunView("run", training_trace(ranks=3, tensors=4, steps=20))
    whole = TileWindow.of(0, 10**12, 1)
    drawn = [rank for _, _, rank, _ in path_within(run, whole)["steps"]]
    counted = critical_path.table(run.steps).groupby("rank")["steps"].max()
    assert {rank: drawn.count(rank) for rank in set(drawn)} == counted.to_dict()
    monkeypatch.setattr("hvdtune.dashboard.critical_path.MAX_MARKS", 3)
    assert path_within(run, whole)["hidden"] == len(drawn)


def test_the_typical_step_is_the_one_of_the_median_time_of_the_slowest_rank():
    run = RunView("run", training_trace(ranks=3, steps=20))
    slowest = run.steps.groupby("step")["step_ms"].max().sort_values()
    assert run.typical_step == slowest.index[(len(slowest) - 1) // 2]
    own = run.steps[run.steps["step"] == run.typical_step]
    said = run.step_spans.loc[run.typical_step]
    assert (said["first_ns"], said["last_ns"]) == (own["begin_ns"].min(), own["end_ns"].max())


def test_a_trace_without_steps_has_no_typical_one():
    assert RunView("run", training_trace(steps=0)).typical_step is None


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_a_directory_opens_its_merged_trace(tmp_path, name):
    trace = training_trace()
    write_chrome(trace, tmp_path / name)
    run = open_run(tmp_path)
    assert run.tensors == RunView("run", trace).tensors
    assert run.summary["steps"] == 6
    assert run.study is None


@pytest.mark.parametrize("with_study", [False, True])
def test_the_run_of_a_study_was_tuned(tmp_path, with_study):
    write_chrome(training_trace(), tmp_path / "trace.json")
    if with_study:
        write_study(tmp_path)
    assert open_run(tmp_path).job.was_tuned == with_study


def test_a_timeline_of_horovod_s_says_who_announced_last(tmp_path):
    run = open_run(write_horovod_timeline(tmp_path / "timeline.json", 20, [0, 5_000]))
    assert [finding.ranks for finding in run.answer.findings] == [(1,)]
    assert "rank 1 was last in 80 of them" in str(ranks.layout(run, PageAddress(0, {})))
    assert "17 steps found" in str(overview.layout(run, PageAddress(0, {})))


def test_a_warning_that_begins_with_the_name_of_a_file_keeps_it():
    said = "trace.json: ends at byte 3 without a closing bracket"
    assert f"Li('{said}')" in str(sentences("About this trace", [said]))


def test_a_run_folder_without_a_merged_trace_opens_its_newest_launch(tmp_path):
    (tmp_path / "run.json").write_text("{}")
    for launch in ("launch-0", "launch-1"):
        shutil.copytree(
            GOLDEN, tmp_path / "ranks" / launch, ignore=shutil.ignore_patterns("*.json")
        )
    run = open_run(tmp_path)
    assert run.ranks == [0]
    assert "showing the newest, launch-1." in run.trace.warnings[0]


@pytest.mark.parametrize(
    ("name", "error", "said"),
    [
        pytest.param(".", UsageError, "holds no trace", id="a directory without a trace"),
        pytest.param("nothing", UsageError, "no such file", id="a missing path"),
        pytest.param("notes.txt", TraceFormatError, "notes.txt", id="a file that is no trace"),
    ],
)
def test_what_cannot_be_shown_is_an_error(tmp_path, name, error, said):
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(error, match=said):
        open_run(tmp_path / name)


@pytest.mark.parametrize("name", ["kineto", "horovod/horovod_resnet50_np2_sigkill.json.gz"])
def test_traces_of_other_programs_are_drawn(name):
    run = open_run(TRACES / name)
    tile = decode(run.swimlane.tile(TileWindow.of(0, run.swimlane.last_ns, 200)))
    assert tile["slices"] > 5
    assert {lane.rank for lane in run.swimlane.lanes} == {*run.ranks}
    assert (tile["row"] < -1).any()


def test_the_evidence_of_a_finding_is_a_step_with_lanes_and_times():
    training = Training([10.0, 12.0], no_processor_ms=[1.0, 6.0], bucket_ms=3.0)
    run = RunView("run", training.trace())
    (found,) = (each for each in run.answer.findings if each.kind == "oversubscribed")
    shown = evidence_of(run, found)
    assert (shown.lane, shown.ranks) == ("busy", (1,))
    lacks = "rank 1 is ready to run but has no processor for 6.00 of 15.30 ms"
    assert f"{lacks}, rank 0 for 1.00 of 15.30 ms. The time" in shown.text
    again = evidence_of(run, found, 20)
    assert again.step == 20 and again.first_ns < again.last_ns
    assert evidence_of(run, found, 10_000) is None


def test_the_evidence_of_a_finding_is_in_a_step_of_usual_length_that_shows_it():
    always = RunView("run", Training([10.0, 14.0], noise_ms=2.0).trace())
    (found,) = always.answer.findings
    lasts = always.step_spans["slowest_ms"]
    assert lasts.quantile(0.25) < lasts[evidence_of(always, found).step] < lasts.quantile(0.75)
    pauses = {(1, step): [("gc", 9.0)] for step in range(5, 60, 6)}
    seldom = RunView("run", Training([10.0, 10.0], spans=pauses).trace())
    (found,) = (each for each in seldom.answer.findings if each.kind == "gc-pauses")
    assert (1, evidence_of(seldom, found).step) in pauses


def test_dumps_of_a_job_that_stands_are_told_of_on_the_overview(tmp_path):
    write_dumps(tmp_path, [[entry(1), entry(2, "started")], [entry(1)]])
    shown = str(overview.layout(open_run(tmp_path), PageAddress(0, {})))
    assert "Rank 1 has not called all_reduce, number 2 of group 0" in shown
    assert "The job hangs" in shown
    assert "nan" not in shown


def about(path: Path) -> str:
    return str(overview.layout(open_run(path), PageAddress(0, {})))


def test_ranks_are_counted_as_far_as_the_trace_tells(tmp_path):
    old = TRACES / "sagemaker-debugger/smdebug_1e5f8e0c_horovod_timeline_607lines.json"
    assert "'7 of at least 8'" in about(old)
    ticked = write_horovod_timeline(tmp_path / "ticked.json", 40, [0, 5_000])
    assert "'at least 2'" in about(ticked)
    page = str(tensors.layout(open_run(old), PageAddress(0, {})))
    assert "88 more tensors were only announced: the trace has no collective of them." in page
    foreign, empty = tmp_path / "foreign.json", tmp_path / "empty.json"
    foreign.write_text('[{"ph": "X", "name": "a", "pid": 3, "tid": 1, "ts": 1, "dur": 5}]')
    empty.write_text("[]")
    assert "the trace does not record ranks" in about(foreign)
    assert "one rank" not in about(foreign) + about(empty)
    assert "the trace holds no slices" in about(empty) and "0 of 0" not in about(empty)
