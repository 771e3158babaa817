"""`hvdtune timeline record` against jobs that run."""

import signal
import time

import pytest

from hvdtune.timeline import read

TRAIN = "init(); print('up', os.getpid())\nwhile True: time.sleep(0.005); step()"


def pids_of(job, ranks=2):
    return [int(job.stdout.readline().split()[-1]) for _ in range(ranks)]


def steps_by_rank(path):
    events = read(path).events
    steps = events[events["kind"] == "STEP"]
    return steps.groupby("rank")["seq"].apply(list).to_dict()


def recorded_some(record, tmp_path):
    """Returns when the parts of both ranks hold several steps."""
    sizes: list[int] = []
    while len(sizes) < 2 or min(sizes) < 5000:
        assert record.poll() is None
        time.sleep(0.01)
        sizes = [path.stat().st_size for path in tmp_path.glob(".trace.json.*/rank-*.hvt")]


def test_a_job_that_runs_is_recorded_for_some_steps(hvdtune, call, script, tmp_path):
    script(TRAIN)
    job = hvdtune("run", "-np", "2", "train.py")
    rank_pid = pids_of(job)[1]
    for target, name in ((job.pid, "first.json"), (rank_pid, "second.json")):
        code, _, err = call("timeline", "record", target, "--steps", "5", "-o", name)
        assert code == 0, err
        assert err.splitlines()[-1] == f"hvdtune: trace: {name}"
        steps = steps_by_rank(tmp_path / name)
        assert steps[0] == steps[1] and len(steps[0]) == 5
    assert job.poll() is None
    assert {path.name for path in tmp_path.iterdir()} == {"train.py", "first.json", "second.json"}


def test_a_run_folder_names_a_job_that_is_recorded_already(hvdtune, call, script, tmp_path):
    script(TRAIN)
    job = hvdtune("run", "-np", "2", "-o", "kept", "--timeline-steps", "1000000:", "train.py")
    pids_of(job)
    code, _, err = call("timeline", "record", "kept", "--steps", "3", "-o", "cut.json")
    assert code == 0, err
    steps = steps_by_rank(tmp_path / "cut.json")
    assert steps[0] == steps[1] and len(steps[0]) == 3


def test_a_trace_that_cannot_be_written_is_not_recorded_first(hvdtune, call, script):
    script(TRAIN)
    job = hvdtune("run", "-np", "2", "-o", "kept", "--timeline-steps", "1000000:", "train.py")
    pids_of(job)
    code, _, err = call("timeline", "record", "kept", "--steps", "3", "-o", "nosuch/x.json")
    assert code == 2
    assert err == "hvdtune: error: --output nosuch/x.json: No such file or directory\n"
    assert job.poll() is None


def test_ctrl_c_ends_a_recording_and_keeps_it(hvdtune, script, tmp_path):
    script(TRAIN)
    job = hvdtune("run", "-np", "2", "train.py")
    pids_of(job)
    record = hvdtune("timeline", "record", job.pid, "-o", "trace.json")
    assert "Ctrl-C" in record.stderr.readline()
    recorded_some(record, tmp_path)
    record.send_signal(signal.SIGINT)
    record.communicate()
    assert record.returncode == 0
    assert set(read(tmp_path / "trace.json").events["rank"]) == {0, 1}


def test_a_job_that_ends_meanwhile_leaves_what_there_was(hvdtune, script, tmp_path):
    script(
        "init(); print('up', os.getpid())\n"
        "while not os.path.exists('enough'): time.sleep(0.005); step()"
    )
    job = hvdtune("run", "-np", "2", "train.py")
    pids_of(job)
    record = hvdtune("timeline", "record", job.pid, "--steps", "1000000", "-o", "trace.json")
    recorded_some(record, tmp_path)
    (tmp_path / "enough").touch()
    _, err = record.communicate()
    assert record.returncode == 0, err
    assert "has ended" in err and "whole steps could be recorded" in err
    assert len(steps_by_rank(tmp_path / "trace.json")[0]) > 5


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["1", "--steps", "5"], "is not a job that `hvdtune run` started on this machine"),
        (["nowhere"], "is neither a process id nor a run folder"),
    ],
)
def test_what_cannot_be_recorded_is_one_line(call, words, fault):
    code, _, err = call("timeline", "record", *words)
    assert code == 2
    assert err.count("\n") == 1 and fault in err
