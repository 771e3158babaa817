import shutil
from pathlib import Path

import pandas as pd
import pytest

from hvdtune.dashboard.data import describe_run, hosts_of, open_run, ranks_of, tensor_names
from hvdtune.dashboard.window import View, draw_window
from hvdtune.errors import TraceFormatError, UsageError
from hvdtune.timeline import write_chrome

from .synthetic import HOSTILE, Recording, training_trace

GOLDEN = Path(__file__).parents[1] / "golden" / "timeline"
TRACES = Path(__file__).parents[1] / "timeline" / "data"


def test_windows_follow_the_steps_and_cover_every_event():
    trace = training_trace(steps=4)
    windows = describe_run("run", trace).windows
    assert list(windows["label"]) == ["before the first step", *(f"step {n}" for n in range(4))]
    assert list(windows["end_ns"][:-1]) == list(windows["begin_ns"][1:])
    assert windows["begin_ns"].iloc[0] == trace.events["begin_ns"].min()
    assert windows["end_ns"].iloc[-1] > trace.events["end_ns"].max()


def test_a_trace_without_steps_is_cut_into_parts_of_equal_size():
    recording = Recording()
    for number in range(1000):
        begin = number * 100.0
        recording.add(0, "ALLREDUCE", (begin, begin + 50), name="t", seq=number, bucket=number)
    windows = describe_run("run", recording.trace(1)).windows
    assert list(windows["label"]) == ["part 1 of 3", "part 2 of 3", "part 3 of 3"]


def test_clock_samples_make_no_window_of_their_own():
    recording = Recording()
    recording.add(1, "CLOCK", (0, 20), seq=100)
    recording.add(0, "STEP", (500, 900), seq=0)
    assert list(describe_run("run", recording.trace(2)).windows["label"]) == ["step 0"]


def test_an_empty_trace_has_no_windows():
    run = describe_run("run", Recording().trace(1))
    assert run.windows.empty
    assert run.summary["steps"] == 0


def test_tensors_ranks_and_hosts_are_named():
    trace = training_trace(ranks=3, tensors=4)
    assert tensor_names(trace)[0] == "model.layer0.weight"
    assert HOSTILE in tensor_names(trace)
    assert ranks_of(trace) == [0, 1, 2]
    assert hosts_of(trace) == ["node-0", "node-1", "node-2"]


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_a_directory_opens_its_merged_trace(tmp_path, name):
    trace = training_trace()
    write_chrome(trace, tmp_path / name)
    run = open_run(tmp_path)
    assert tensor_names(run.trace) == tensor_names(trace)
    assert run.summary["steps"] == 6
    assert run.study is None


def test_a_run_folder_without_a_merged_trace_opens_its_newest_launch(tmp_path):
    (tmp_path / "run.json").write_text("{}")
    for launch in ("launch-0", "launch-1"):
        shutil.copytree(
            GOLDEN, tmp_path / "ranks" / launch, ignore=shutil.ignore_patterns("*.json")
        )
    run = open_run(tmp_path)
    assert ranks_of(run.trace) == [0]
    assert "this is the newest, launch-1" in run.trace.warnings[0]


def test_a_directory_without_a_trace_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match=r"holds no trace"):
        open_run(tmp_path)


def test_a_missing_path_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match="no such file"):
        open_run(tmp_path / "nothing")


def test_a_file_that_is_no_trace_is_a_trace_format_error(tmp_path):
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(TraceFormatError):
        open_run(tmp_path / "notes.txt")


def test_window_times_are_whole_nanoseconds():
    windows = describe_run("run", training_trace()).windows
    assert pd.api.types.is_integer_dtype(windows["begin_ns"])


@pytest.mark.parametrize("name", ["kineto", "horovod/horovod_resnet50_np2_sigkill.json.gz"])
def test_traces_of_other_programs_are_drawn(name):
    run = open_run(TRACES / name)
    drawing = draw_window(run, View(count=5))
    assert len(drawing.bars) > 5
    assert "slices are of no kind that hvdtune records" in run.trace.warnings[-1]
