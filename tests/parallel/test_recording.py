"""hvd.start_timeline() and hvd.stop_timeline() inside a running job."""

import json
from pathlib import Path

import pytest
import torch

import hvdtune.torch as hvd
from hvdtune.errors import UsageError
from hvdtune.timeline import read
from tests.parallel.ranks import run


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


def test_shutdown_ends_the_timeline(tmp_path):
    run(record_until_shutdown, 2, tmp_path)
    assert "gradient" in (tmp_path / "trace.json").read_text()


def record_on_rank_0_alone(folder: Path) -> None:
    if hvd.rank() == 0:
        hvd.start_timeline(folder / "trace.json")
    hvd.allreduce(torch.ones(4), name="gradient")
    if hvd.rank() == 0:
        with pytest.warns(UserWarning, match="no timeline of rank 1"):
            hvd.stop_timeline()


def test_a_rank_that_did_not_start_is_not_waited_for(tmp_path):
    run(record_on_rank_0_alone, 2, tmp_path)
    assert "gradient" in (tmp_path / "trace.json").read_text()


def misuse(folder: Path) -> list[str]:
    said = []
    hvd.stop_timeline()
    for path in (folder, folder / "nowhere" / "trace.json"):
        with pytest.raises(UsageError) as refused:
            hvd.start_timeline(path)
        said.append(str(refused.value))
    hvd.start_timeline(folder / "trace.json")
    with pytest.raises(UsageError, match=r"trace\.json is being recorded; stop it first"):
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


def record_what_is_recorded(folder: Path) -> None:
    with pytest.warns(UserWarning, match="being recorded already"):
        hvd.start_timeline(folder / "trace.json")
    hvd.stop_timeline()


def test_a_job_that_is_recorded_from_outside_keeps_to_that(tmp_path):
    run(record_what_is_recorded, 1, tmp_path, timeline=str(tmp_path / "rank-%r.hvt"))
    assert not (tmp_path / "trace.json").exists()
