import errno
import json
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from hvdtune.core.job.interrupt import Stopped
from hvdtune.errors import HvdtuneError, UsageError
from hvdtune.workflows.run_folder import (
    RunFolder,
    RunIdentity,
    contents,
    fresh_path,
    latest_unfinished,
)

_TRAIN = RunIdentity(("train.py", "--lr", "1"), ("localhost",), {"knobs": None})


def _study(**study):
    return RunIdentity(_TRAIN.command, _TRAIN.hosts, {"knobs": None, **study})


def test_a_folder_tells_what_ran_in_it(tmp_path):
    with RunFolder(tmp_path / "run", _TRAIN):
        stored = json.loads((tmp_path / "run" / "run.json").read_text())
    assert stored["command"] == ["train.py", "--lr", "1"]


def test_a_command_is_told_to_its_user_alone(tmp_path):
    before = os.umask(0o022)
    try:
        with RunFolder(tmp_path / "run", _TRAIN):
            pass
    finally:
        os.umask(before)
    assert (tmp_path / "run" / "run.json").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "run").stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize("error", [HvdtuneError("the script failed"), Stopped(signal.SIGTERM)])
def test_what_ended_a_run_is_kept_until_the_next_one(tmp_path, error):
    with pytest.raises(type(error)), RunFolder(tmp_path, _TRAIN):
        raise error
    assert (tmp_path / "failure.txt").read_text() == str(error)
    with RunFolder(tmp_path, _TRAIN):
        pass
    assert not (tmp_path / "failure.txt").exists()


_AS_USUAL = {"objectives": ["step_time"], "fix": [], "space": None, "storage": "sqlite:///x"}


@pytest.mark.parametrize(
    "same",
    [pytest.param(_TRAIN, id="as-before"), pytest.param(_study(**_AS_USUAL), id="as-usual")],
)
def test_the_same_command_may_use_its_folder_again(tmp_path, same):
    for identity in (_TRAIN, same):
        with RunFolder(tmp_path, identity) as folder:
            assert folder.path == tmp_path


@pytest.mark.parametrize(
    "other",
    [
        RunIdentity(("other.py",), ("localhost",)),
        _study(objectives=["cpu_time"]),
        _study(objectives=["step_time", "cpu_time"]),
        _study(mode="restart", adapter="hvdtune"),
        _study(metric="loss ([0-9.]+)"),
        _study(launch_time=0.1),
        _study(vary=["OTHER=x"]),
        _study(knobs="cycle_time_ms"),
        _study(default={"cycle_time_ms": 2.0}),
        _study(compare=[{}]),
    ],
    ids=lambda other: "-".join(other.study or ["command"]),
)
def test_the_folder_of_another_command_or_study_is_refused(tmp_path, other):
    with RunFolder(tmp_path, _TRAIN):
        pass
    message = "contains the run of a different command or with different settings; choose another"
    with pytest.raises(UsageError, match=message):
        RunFolder(tmp_path, other)


def _given(**variables):
    return replace(_TRAIN, variables=variables)


@pytest.mark.parametrize(
    ("first", "then", "names"),
    [
        (_given(), _given(A="1f"), "A"),
        (_given(A="1f"), _given(), "A"),
        (_given(A="1f", B="2e", C="3d"), _given(A="10", B="2e", D="4c"), "A, C, D"),
    ],
    ids=["more", "fewer", "others"],
)
def test_a_study_goes_on_only_with_the_variables_that_it_was_given(tmp_path, first, then, names):
    run = tmp_path / "run"
    with RunFolder(run, first):
        pass
    assert latest_unfinished(first, tmp_path) == run
    assert latest_unfinished(then, tmp_path) is None
    with pytest.raises(UsageError, match=f"with other values of the variables {names}; choose"):
        RunFolder(run, then)
    for same in (first, replace(then, study=None)):  # without a study nothing is pooled
        RunFolder(run, same).__exit__(None, None, None)


def test_an_older_run_that_tells_no_variables_is_continued(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    document = _TRAIN.to_json()
    del document["variables"]
    (run / "run.json").write_text(json.dumps(document))
    assert latest_unfinished(_given(A="1f"), tmp_path) == run
    with RunFolder(run, _given(A="1f")):
        pass


def test_the_first_study_in_the_folder_of_a_plain_run_decides(tmp_path):
    plain = RunIdentity(_TRAIN.command, _TRAIN.hosts)
    for identity in (plain, _study(objectives=["cpu_time"]), plain):
        with RunFolder(tmp_path, identity):
            pass
    with pytest.raises(UsageError, match="different settings"):
        RunFolder(tmp_path, _TRAIN)


def test_a_folder_in_use_is_refused(tmp_path):
    with RunFolder(tmp_path, _TRAIN), pytest.raises(HvdtuneError, match="another hvdtune"):
        RunFolder(tmp_path, _TRAIN)


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(HvdtuneError, match="cannot use the folder"):
        RunFolder(tmp_path / "file" / "run", _TRAIN)


def test_launches_are_numbered_by_their_logs(tmp_path):
    with RunFolder(tmp_path, _TRAIN) as folder:
        assert folder.next_launch() == 0
        folder.log(0).touch()
        folder.log(11).touch()
        assert folder.next_launch() == 12


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(
            RunIdentity(("other.py",), ("localhost",), {"knobs": None}), id="another-command"
        ),
        pytest.param(_study(knobs="a"), id="searches-less"),
        pytest.param(RunIdentity(_TRAIN.command, _TRAIN.hosts), id="no-study"),
    ],
)
def test_the_latest_unfinished_study_of_the_same_command_is_found(tmp_path, other):
    runs = {"first": _TRAIN, "second": _TRAIN, "done": _TRAIN, "other": other}
    for time_s, (name, identity) in enumerate(runs.items()):
        with RunFolder(tmp_path / name, identity):
            os.utime(tmp_path / name / "run.json", (time_s, time_s))
    (tmp_path / "done" / "verdict.json").touch()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "run.json").write_text("{")
    assert latest_unfinished(_TRAIN, tmp_path) == tmp_path / "second"


def test_runs_of_other_users_are_passed_over(tmp_path, monkeypatch):
    for time_s, name in enumerate(["mine", "theirs"]):
        with RunFolder(tmp_path / name, _TRAIN):
            os.utime(tmp_path / name / "run.json", (time_s, time_s))
    read_bytes = Path.read_bytes

    def read(path):
        if path.parent.name == "theirs":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", read)
    assert latest_unfinished(_TRAIN, tmp_path) == tmp_path / "mine"


def test_a_study_that_is_being_worked_on_is_not_continued(tmp_path):
    with RunFolder(tmp_path / "run", _TRAIN):
        assert latest_unfinished(_TRAIN, tmp_path) is None


def test_where_there_are_no_runs_none_is_found(tmp_path):
    assert latest_unfinished(_TRAIN, tmp_path / "runs") is None


def test_fresh_paths_differ_within_a_second(tmp_path):
    paths = set()
    for _ in range(3):
        path = fresh_path("jobs/train.py", tmp_path)
        path.mkdir()
        paths.add(path)
    assert len(paths) == 3
    assert all(path.name.startswith("train-2") for path in paths)


def test_only_files_that_are_there_are_listed(tmp_path):
    with RunFolder(tmp_path, _TRAIN):
        (tmp_path / "report.md").touch()
        assert contents(tmp_path) == [(str(tmp_path / "report.md"), "report")]
