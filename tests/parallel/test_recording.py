"""hvd.start_timeline() and hvd.stop_timeline() inside a running job."""

import contextlib
import json
import os
import signal
import time
import warnings
from pathlib import Path
from unittest import mock

import pytest
import torch

import hvdtune.torch as hvd
from hvdtune import recording
from hvdtune.core.elastic import loop
from hvdtune.core.rank import collectives, runtime
from hvdtune.errors import CollectiveError, UsageError
from hvdtune.parse import StepWindow
from hvdtune.timeline import merge, read
from hvdtune.timeline.model.schema import COLLECTIVES, PROCESS_SET_UNIT
from tests.parallel.ranks import run, start


def record_twice(folder: Path) -> None:
    for name in ("first", "second"):
        hvd.allreduce(torch.ones(4), name=f"before.{name}")
        hvd.start_timeline(folder / f"{name}.json", mark_cycles=True)
        hvd.allreduce(torch.ones(4), name=f"inside.{name}")
        hvd.stop_timeline()
        hvd.allreduce(torch.ones(4), name=f"after.{name}")


def test_a_timeline_holds_what_happened_between_its_start_and_its_stop(tmp_path):
    run(record_twice, 2, tmp_path)
    for name in ("first", "second"):
        text = (tmp_path / f"{name}.json").read_text()
        assert f"inside.{name}" in text
        assert "after" not in text
        assert {event.get("pid") for event in json.loads(text)["traceEvents"]} >= {0, 1}
        assert not read(tmp_path / f"{name}.json").warnings
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first.json", "second.json"]


def record_until_shutdown(folder: Path) -> None:
    hvd.start_timeline(folder / "trace.json")
    hvd.allreduce(torch.ones(4), name="gradient")
    hvd.shutdown()


def record_on_rank_0_alone(folder: Path) -> None:
    if hvd.rank() == 0:
        hvd.start_timeline(folder / "trace.json")
    hvd.allreduce(torch.ones(4), name="gradient")
    if hvd.rank() == 0:
        with pytest.warns(UserWarning, match="no timeline of rank 1"):
            hvd.stop_timeline()


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(record_until_shutdown, id="shutdown-ends-the-timeline"),
        pytest.param(record_on_rank_0_alone, id="a-rank-that-did-not-start-is-not-waited-for"),
    ],
)
def test_what_was_recorded_is_kept(tmp_path, body):
    run(body, 2, tmp_path)
    assert "gradient" in (tmp_path / "trace.json").read_text()


def record_and_be_killed(folder: Path) -> None:
    hvd.start_timeline(folder / "trace.json")
    with contextlib.suppress(CollectiveError):
        collectives.barrier()
    os.kill(os.getpid(), signal.SIGKILL)


def record_where_rank_0_stops_last(folder: Path) -> None:
    hvd.start_timeline(folder / "trace.json")
    hvd.allreduce(torch.ones(4), name="gradient")
    if hvd.rank() != 0:
        hvd.stop_timeline()
    collectives.barrier()
    if hvd.rank() == 0:
        with mock.patch.object(recording.time, "sleep", side_effect=AssertionError("it waits")):
            hvd.stop_timeline()


def test_what_a_killed_job_has_left_is_not_waited_for_and_not_in_the_trace(tmp_path):
    run(record_and_be_killed, 3, tmp_path)
    assert len(list(tmp_path.glob(".trace.json.*/rank-*.part"))) == 3
    run(record_where_rank_0_stops_last, 2, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["trace.json"]
    trace = read(tmp_path / "trace.json")
    assert set(trace.ranks) == {0, 1} and not trace.warnings


def record_while_another_job_begins(folder: Path) -> None:
    hvd.start_timeline(folder / "trace.json")
    hvd.allreduce(torch.ones(4), name="gradient")
    (folder / f"recording-{hvd.rank()}").touch()
    while not (folder / "begun").exists():
        time.sleep(0.01)
    hvd.stop_timeline()


def begin_and_end(folder: Path) -> None:
    hvd.start_timeline(folder / "trace.json")
    hvd.stop_timeline()


def test_another_job_with_the_same_target_leaves_the_folder_of_one_that_records(tmp_path):
    with start(record_while_another_job_begins, 2, tmp_path) as job:
        while len(list(tmp_path.glob("recording-*"))) < 2:
            time.sleep(0.01)
        run(begin_and_end, 1, tmp_path)
        (tmp_path / "begun").touch()
        assert [outcome.trace for outcome in job.outcomes(60)] == ["", ""]
    trace = read(tmp_path / "trace.json")
    assert set(trace.ranks) == {0, 1} and not trace.warnings
    assert "gradient" in (tmp_path / "trace.json").read_text()
    assert not list(tmp_path.glob(".trace.json.*"))


def form_anew_without_a_place_for_the_trace(folder: Path) -> int:
    (folder / "gone").mkdir()
    hvd.start_timeline(folder / "gone" / "trace.json")
    (folder / "gone" / "trace.json").mkdir()
    with pytest.warns(RuntimeWarning, match="cannot write the trace"):
        loop._form_anew()
    return hvd.size()


def test_an_elastic_rank_goes_on_where_its_trace_cannot_be_written(tmp_path):
    assert run(form_anew_without_a_place_for_the_trace, 1, tmp_path) == [1]


def record_where_rank_0_stops_first(folder: Path) -> list[str]:
    recording.PATIENCE_S = 0.0
    hvd.start_timeline(folder / "trace.json")
    hvd.allreduce(torch.ones(4), name="gradient")
    with warnings.catch_warnings(record=True) as said:
        if hvd.rank() == 0:
            hvd.stop_timeline()
        collectives.barrier()
        hvd.stop_timeline()
    return [str(warning.message) for warning in said]


def test_a_rank_that_rank_0_went_without_stops_without_an_error(tmp_path):
    said, none = run(record_where_rank_0_stops_first, 2, tmp_path)
    assert "rank 1" in said[0] and none == []


def misuse(folder: Path) -> list[str]:
    said = []
    hvd.stop_timeline()
    for path in (folder, folder / "nowhere" / "trace.json"):
        with pytest.raises(UsageError) as refused:
            hvd.start_timeline(path)
        said.append(str(refused.value))
    hvd.start_timeline(folder / "trace.json")
    with pytest.raises(UsageError, match=r"trace\.json is being recorded. Stop it first"):
        hvd.start_timeline(folder / "other.json")
    hvd.stop_timeline()
    hvd.shutdown()
    with pytest.raises(ValueError, match="has not been initialized"):
        hvd.start_timeline(folder / "trace.json")
    with pytest.raises(ValueError, match="has not been initialized"):
        hvd.stop_timeline()
    return said


def test_misuse_is_one_sentence(tmp_path):
    (said,) = run(misuse, 1, tmp_path)
    assert "is a directory" in said[0] and "No such file or directory" in said[1]


def plant_link_to_folder(parts: Path, victim: Path) -> None:
    parts.symlink_to(victim.parent, target_is_directory=True)


def plant_open_folder(parts: Path, victim: Path) -> None:
    parts.mkdir()
    parts.chmod(0o777)
    (parts / "rank-0.part").symlink_to(victim)


def plant_link_in_own_folder(parts: Path, victim: Path) -> None:
    parts.mkdir(0o700)
    (parts / "rank-0.part").symlink_to(victim)


PLANTED = {
    plant_link_to_folder: "is a link: remove it",
    plant_open_folder: "can be written to by other users: remove it",
    plant_link_in_own_folder: "Too many levels of symbolic links",
}


def record_where_something_was_planted(folder: Path) -> list[str]:
    said, job = [], runtime.job_name()
    for plant in PLANTED:
        victim = folder / plant.__name__ / "rank-0.part"
        victim.parent.mkdir()
        victim.write_text("kept")
        plant(folder / f".{plant.__name__}.json.ranks-{job}", victim)
        try:
            hvd.start_timeline(folder / f"{plant.__name__}.json")
            hvd.stop_timeline()
            said.append("")
        except UsageError as error:
            said.append(str(error))
        assert victim.read_text() == "kept"
    return said


def test_links_that_others_have_planted_are_not_followed(tmp_path):
    (said,) = run(record_where_something_was_planted, 1, tmp_path)
    for text, expected in zip(said, PLANTED.values(), strict=True):
        assert expected in text


def reduce_twice() -> None:
    for _ in range(2):
        hvd.allreduce(torch.ones(2, 3), name="gradient")


def test_without_a_launcher_horovods_variable_has_the_ranks_write(tmp_path):
    target = tmp_path / "timeline.json"
    run(reduce_twice, 2, horovod_timeline=str(target), horovod_cycles=True)
    events = json.loads(target.read_text())
    ticks = [event["name"] for event in events if event["ph"] == "X"]
    assert sorted(ticks) == ["0", "0", "1", "1"]
    assert {"GLOO_ALLREDUCE", "CYCLE_START"} <= {event.get("name") for event in events}
    (shape,) = {
        event["args"]["shape"] for event in events if event["ph"] == "E" and "args" in event
    }
    assert shape == "[2, 3]"
    assert list(tmp_path.iterdir()) == [target]


def record_what_is_recorded(folder: Path) -> None:
    with pytest.warns(UserWarning, match="already records this job's timeline"):
        hvd.start_timeline(folder / "trace.json")
    hvd.stop_timeline()


def test_a_job_that_is_recorded_from_outside_keeps_to_that(tmp_path):
    run(record_what_is_recorded, 1, tmp_path, timeline=str(tmp_path / "rank-%r.hvt"))
    assert not (tmp_path / "trace.json").exists()


def train(steps: int, tensors: int) -> None:
    for _ in range(steps):
        hvd.mark_step()
        handles = [hvd.allreduce_async(torch.ones(8), name=f"g{i}") for i in range(tensors)]
        for handle in handles:
            hvd.synchronize(handle)
    hvd.mark_step()


def recorded(folder: Path, body, *arguments, ranks: int = 2, **config):
    run(body, ranks, *arguments, timeline=str(folder / "rank-%r.hvt"), **config)
    trace = merge(sorted(folder.glob("rank-*.hvt")))
    assert trace.warnings == []
    return trace


def test_every_rank_has_when_each_announced_what_cached_or_not(tmp_path):
    events = recorded(tmp_path, train, 20, 10).events
    announced = events[events["kind"] == "NEGOTIATE"]
    of_ranks = announced.groupby(["name", "seq"], observed=True)["rank"].apply(sorted)
    assert len(of_ranks) >= 200
    assert all(ranks == [0, 1] for ranks in of_ranks)
    assert (announced["arg"] % PROCESS_SET_UNIT).sum() >= 2 * 19 * 10
    done = events[events["kind"].isin(COLLECTIVES)]
    assert len(done) == len(announced)


def of_one_rank_and_of_all() -> None:
    alone = hvd.add_process_set([1])
    for _ in range(3):
        if hvd.rank() == 1:
            hvd.allreduce(torch.ones(3), name="alone", process_set=alone)
        hvd.allreduce(torch.ones(3), name="all")


def test_what_happened_together_has_one_number_on_all_ranks(tmp_path):
    events = recorded(tmp_path, of_one_rank_and_of_all).events
    done = events[(events["kind"] == "ALLREDUCE") & (events["name"] == "allreduce.all")]
    buckets = done.groupby("seq")["bucket"].apply(list)
    assert len(buckets) == 3
    assert all(len(pair) == 2 and len(set(pair)) == 1 for pair in buckets)
    queued = events[events["kind"] == "QUEUE"].astype({"name": "str"})
    assert set(queued.loc[queued["name"] == "allreduce.alone", "arg"]) == {1}
    assert set(queued.loc[queued["name"] == "allreduce.all", "arg"]) == {0}


def of_two_dtypes() -> None:
    for _ in range(5):
        wide = [torch.ones(1000) for _ in range(4)]
        group = [*wide, *(tensor.to(torch.float64) for tensor in wide)]
        handles = [hvd.allreduce_async(t, name=f"t{i}", op=hvd.Sum) for i, t in enumerate(group)]
        for handle in handles:
            hvd.synchronize(handle)


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ({"fusion_threshold_bytes": 8500, "cycle_time_ms": 20.0}, "fusion threshold"),
        ({"fusion_threshold_bytes": 1 << 20, "cycle_time_ms": 20.0}, "others are of another kind"),
        ({"fusion_threshold_bytes": 0}, "fusion is off"),
    ],
)
def test_every_bucket_says_why_it_was_closed(tmp_path, setting, reason):
    events = recorded(tmp_path, of_two_dtypes, setting=setting).events
    reasons = set(events.loc[events["kind"] == "BUCKET", "name"].astype("str"))
    assert reason in reasons and "" not in reasons


def test_only_the_steps_asked_for_are_recorded(tmp_path):
    window = StepWindow(first=3, end=9, every=2)
    trace = recorded(tmp_path, train, 12, 2, recording_steps=window)
    steps = trace.events[trace.events["kind"] == "STEP"]
    assert steps.groupby("rank")["seq"].apply(list).to_dict() == {0: [3, 5, 7], 1: [3, 5, 7]}
    done = trace.events[trace.events["kind"] == "ALLREDUCE"]
    assert done.groupby("rank").size().to_dict() == {0: 6, 1: 6}
    assert (
        trace.meta["ranks"][0] | {"first_step": 3, "end_step": 9, "every": 2}
        == (trace.meta["ranks"][0])
    )


def test_a_file_says_whose_it_is_and_what_its_tensors_are(tmp_path):
    meta = recorded(tmp_path, train, 1, 1).meta
    for rank in (0, 1):
        told = meta["ranks"][rank]
        assert (told["rank"], told["local_rank"], told["size"]) == (rank, rank, 2)
        assert told["clock"] == "CLOCK_MONOTONIC" and len(told["boot_id"]) == 36
        assert told["processors"] >= 1 and told["version"] and told["host"]
    assert meta["shapes"]["allreduce.g0"] == "float32[8]"
