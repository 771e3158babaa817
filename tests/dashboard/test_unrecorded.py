"""Pages of traces that lack what they would show say what is not recorded."""

import numpy as np
import pytest

from hvdtune.dashboard.critical_path import path_within
from hvdtune.dashboard.data import RunView, open_run
from hvdtune.dashboard.evidence import evidence_of
from hvdtune.dashboard.figures.breakdown import parts_of as parts_of_steps
from hvdtune.dashboard.figures.phases import phases_figure
from hvdtune.dashboard.figures.theme import LIGHT
from hvdtune.dashboard.pages import PAGES
from hvdtune.dashboard.shell import PageAddress
from hvdtune.dashboard.tiles import TileWindow
from hvdtune.timeline import Trace
from hvdtune.timeline.analysis.metrics.tensors import tensor_table
from tests.dashboard.test_quantities import shown_on
from tests.kit.horovod_timeline import STEP_US, write_horovod_timeline
from tests.kit.synthetic import Training
from tests.kit.traces import KINETO
from tests.timeline.analysis.test_unrecorded import write_profiles, write_single

from .decode import decode


@pytest.fixture
def profiles(tmp_path) -> RunView:
    write_profiles(tmp_path)
    return open_run(tmp_path)


def texts_on(run: RunView, path: str) -> str:
    return " ".join(part for part in shown_on(run, path) if isinstance(part, str))


@pytest.mark.parametrize("path", ["/", "/ranks", "/timeline", "/tensors", "/fusion"])
def test_every_page_says_that_collectives_are_not_recorded(profiles, path):
    texts = texts_on(profiles, path)
    assert texts.count("record hvdtune's timeline, too") == 1
    for claim in ("is last in", " 0.00 ms", "No tensor was reduced", "Nothing was announced"):
        assert claim not in texts


def test_where_waits_are_not_recorded_nothing_is_drawn_as_busy(profiles):
    assert "busy" not in {lane.label for lane in profiles.swimlane.lanes}
    path = path_within(profiles, TileWindow.of(0, profiles.swimlane.last_ns, 100))
    assert path["steps"] == [] and "are not known" in path["text"]
    values = {getattr(p, "data-quantity", None): p for p in shown_on(profiles, "/")}
    assert getattr(values["waiting-for-ranks"], "data-value") == "not known"


def test_a_bar_of_waiting_has_its_length_where_it_is_not_known_for_what():
    (path, *_) = sorted(KINETO.glob("*rank0*"))
    run = open_run(path)
    parts = parts_of_steps(run.steps)
    assert parts.sum(axis=1).to_numpy() == pytest.approx(run.steps["step_ms"].to_numpy())
    assert parts["waiting"].to_numpy() == pytest.approx(run.steps["blocked_ms"].to_numpy())


def test_a_rank_without_steps_is_not_counted_among_those_that_have_them():
    whole = Training([10.0, 13.0]).trace()
    gone = (whole.events["kind"] == "STEP") & (whole.events["rank"] == 1)
    run = RunView("run", Trace(whole.events[~gone], whole.meta))
    overview, waited = texts_on(run, "/"), run.quantities["waiting-for-ranks"]
    assert "steps of 1 rank" in overview and "steps of rank 1 are missing" in overview.lower()
    assert f"{waited:.2f} ms" in overview and f"{waited:.2f} ms" in texts_on(run, "/ranks")


def test_steps_that_recur_are_there_to_be_compared(tmp_path):
    run = open_run(write_horovod_timeline(tmp_path / "trace.json", 40, [0, 5_000]))
    assert len(run.steps) == len(run.step_spans) == 35 and run.typical_step is not None
    assert [PAGES[path].layout(run, PageAddress(0, {})) for path in PAGES]


def test_a_step_shows_that_a_single_process_waits_for_input(tmp_path):
    run = open_run(write_single(tmp_path / "trace.json", STEP_US // 2))
    (found,) = run.answer.findings
    assert texts_on(run, "/").count("record hvdtune's timeline, too") == 1
    shown = evidence_of(run, found)
    assert shown is not None and f"for {STEP_US / 2_000:.2f} of" in shown.text
    assert "1 of 1" in shown_on(run, "/")


def test_times_of_a_tensor_are_drawn_as_its_table_says_them():
    (path, *_) = sorted(KINETO.glob("*rank0*"))
    both, alone = open_run(KINETO), open_run(path)
    (name,) = both.tensors
    (drawn,) = phases_figure(both.trace, name, LIGHT).data
    (row,) = tensor_table(both.trace).to_dict("records")
    assert np.median(drawn.x) == pytest.approx(row["communicate_p50_us"] / 1000)
    assert not phases_figure(alone.trace, name, LIGHT).data
    assert "Not recorded: " in texts_on(alone, "/tensors")
    assert "when collectives are under way" in texts_on(alone, "/tensors")


@pytest.mark.parametrize("bucket_ms", [0.01, 1.0, 700.0])
def test_the_phases_of_a_tensor_are_counted_in_the_same_bins(bucket_ms):
    trace = Training([10.0, 13.0], bucket_ms=bucket_ms, noise_ms=0.3).trace()
    name, *_ = tensor_table(trace)["tensor"]
    series = phases_figure(trace, name, LIGHT).data
    assert len(series) > 1
    (bins,) = {(each.xbins.start, each.xbins.end, each.xbins.size) for each in series}
    start, end, size = bins
    longest = max(each.x.max() for each in series)
    assert start == 0 and longest < end and 60 / 2.5 <= longest / size <= 60


def test_lanes_of_a_timeline_of_horovods_have_the_names_of_tensors(tmp_path):
    run = open_run(write_horovod_timeline(tmp_path / "trace.json", 40, [0, 5_000]))
    labels = {lane.label for lane in run.swimlane.lanes}
    assert set(run.tensors) <= labels and not any("no thread" in label for label in labels)


@pytest.mark.parametrize(
    "training",
    [
        Training([10.0]),
        Training([4.0], bucket_ms=6.0),
        Training([10.0], bucket_ms=4.0, asleep_ms=[3.0]),
        Training([10.0], bucket_ms=4.0, no_processor_ms=[3.0]),
        Training([10.0], spans={(0, None): [("input", 5.0)]}),
    ],
    ids=["even", "communication", "asleep", "without a processor", "input"],
)
def test_nothing_is_called_a_mean_of_ranks_or_the_slowest_of_them_where_there_is_one(training):
    run = RunView("run", training.trace())
    texts = " ".join(texts_on(run, path) for path in ("/", "/timeline", "/ranks"))
    for words in ("all ranks", "each rank", "every rank", "Every rank", "slowest rank"):
        assert words not in texts


@pytest.mark.parametrize(
    ("hosts", "said"),
    [
        pytest.param(("a", "a"), "share its clock", id="one host"),
        pytest.param(("a", "b"), "offsets were not measured", id="two hosts"),
        pytest.param(("a", ""), "offsets were not measured", id="one that is not named"),
        pytest.param((), "offsets were not measured", id="none is named"),
    ],
)
def test_ranks_of_one_host_have_one_clock(tmp_path, hosts, said):
    write_profiles(tmp_path, hosts=hosts)
    assert said in texts_on(open_run(tmp_path), "/")


def test_what_one_rank_wrote_is_on_its_clock(tmp_path):
    run = open_run(write_horovod_timeline(tmp_path / "trace.json", 40, [0, 5_000]))
    assert "the clock of rank 0, which wrote the timeline" in texts_on(run, "/")
    (path, *_) = write_profiles(tmp_path)
    assert "not measured" not in texts_on(open_run(path), "/")


def test_steps_that_recur_are_marked_as_found(tmp_path):
    run = open_run(write_horovod_timeline(tmp_path / "trace.json", 40, [0, 5_000]))
    marks = run.swimlane.marks.within(TileWindow.of(0, run.swimlane.last_ns, 1_000))["steps"]
    assert marks == [
        [begin, f"step {step} (found)"]
        for begin, step in zip(run.steps["begin_ns"], run.steps["step"], strict=True)
    ]
    assert "found from the recurrence of tensors" in texts_on(run, "/timeline")
    recorded = RunView("run", Training([10.0, 13.0]).trace())
    (first, *_) = recorded.swimlane.marks.texts["steps"]
    assert first == "step 0" and "recurrence" not in texts_on(recorded, "/timeline")


def test_a_lane_of_a_tensor_has_the_announcements_that_ticks_tell(tmp_path):
    run = open_run(write_horovod_timeline(tmp_path / "trace.json", 40, [0, 5_000]))
    name = run.tensors[-1]
    tile = decode(run.swimlane.tile(TileWindow.of(0, run.swimlane.last_ns, 1_000), (), [name]))
    ticks = tile["ticks"]
    assert [(rank, last) for _, _, rank, last in ticks] == [(0, False), (1, True)] * (
        len(ticks) // 2
    )
    at = [ns for _, ns, _, _ in ticks]
    assert {second - first for first, second in zip(at[::2], at[1::2], strict=True)} == {5_000_000}
    assert len(ticks) >= 2 * 39


def test_a_trace_of_one_rank_is_not_asked_for_the_steps_of_others():
    text = texts_on(RunView("run", Training([10.0]).trace()), "/ranks")
    assert "is of one rank" in text and "mark steps" not in text
