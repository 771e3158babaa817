import contextlib
import gc
import json
import os
import signal
import sys
import threading

import psutil
import pytest

from hvdtune.errors import LaunchError
from hvdtune.launcher.hosts import parse_hosts
from hvdtune.launcher.plan import Slot, plan_slots
from hvdtune.launcher.ranks import JobOptions, JobPlan, setting_environ, start_ranks


def test_every_rank_finds_its_place_in_the_environment(start_job, collected):
    job = start_job(
        "init(); print(json.dumps(dict(os.environ)))".replace("init()", "init(); import json"),
        ranks=4,
        hosts="127.0.0.1:2,127.0.0.2:2",
        writers=(collected,),
    )
    assert job.wait().returncode == 0
    seen = {}
    for line in collected.text["stdout"].splitlines():
        environ = json.loads(line.partition(">:")[2])
        place = [
            int(environ[f"HVDTUNE_{name}"])
            for name in ("LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE", "SIZE")
        ]
        seen[int(environ["HVDTUNE_RANK"])] = (environ["HVDTUNE_HOST"], *place)
        assert environ["HOROVOD_LOCAL_RANK"] == environ["HVDTUNE_LOCAL_RANK"]
    assert seen == {
        0: ("127.0.0.1", 0, 2, 0, 2, 4),
        1: ("127.0.0.1", 1, 2, 0, 2, 4),
        2: ("127.0.0.2", 0, 2, 1, 2, 4),
        3: ("127.0.0.2", 1, 2, 1, 2, 4),
    }


def test_the_key_is_neither_in_the_environment_nor_in_argv_and_cannot_be_changed(
    start_job, collected
):
    body = """
init()
fd = int(os.environ["HVDTUNE_KEY_FD"])
key = os.pread(fd, 64, 0)
texts = list(os.environ.values()) + sys.argv
print(len(key), any(key.hex() in text for text in texts))
try:
    os.pwrite(fd, b"x", 0)
except PermissionError:
    print("sealed")
"""
    job = start_job(body, ranks=1, writers=(collected,))
    assert job.wait().returncode == 0
    assert collected.text["stdout"].splitlines() == ["[0]<stdout>:32 False", "[0]<stdout>:sealed"]


def test_output_is_prefixed_with_rank_and_stream(start_job, collected):
    body = """
init()
print("out of", os.environ["HVDTUNE_RANK"])
print("err of", os.environ["HVDTUNE_RANK"], file=sys.stderr)
"""
    assert start_job(body, writers=(collected,)).wait().returncode == 0
    assert sorted(collected.text["stdout"].splitlines()) == [
        "[0]<stdout>:out of 0",
        "[1]<stdout>:out of 1",
    ]
    assert sorted(collected.text["stderr"].splitlines()) == [
        "[0]<stderr>:err of 0",
        "[1]<stderr>:err of 1",
    ]


def test_the_code_of_the_first_rank_to_fail_is_the_jobs_and_the_others_may_report(start_job):
    body = """
first = os.path.join(os.path.dirname(__file__), "first")
if os.environ["HVDTUNE_RANK"] == "1":
    open(first, "w").write(str(os.getpid()))
    peer = init()
    sys.exit(3)
peer = init()
while os.path.exists("/proc/" + open(first).read()):  # until the launcher has seen its end
    time.sleep(0.01)
print("rank 1 is gone")
sys.exit(4)
"""
    job = start_job(body, options=JobOptions(report_grace_s=20))
    report = job.wait()
    assert (report.returncode, report.reason) == (3, "rank 1 exited with code 3")
    assert job.tail(0) == ("rank 1 is gone",)


_NO_JOB = "rank.py ended without calling hvd.init(): its processes never formed a job"
_IGNORE_SIGTERM = """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
init()
place == 0 and sys.exit(7)
time.sleep(600)
"""
_SHORT = {"report_grace_s": 0.5, "terminate_grace_s": 0.5}


@pytest.mark.parametrize(
    ("body", "graces", "code", "reason"),
    [
        ("init(); place == 1 and os.kill(os.getpid(), 9)", {}, 137, "rank 1 was killed by SIGKILL"),
        (_IGNORE_SIGTERM, {}, 7, "rank 0 exited with code 7"),
        ("print('hello')", {}, 0, _NO_JOB),
        ("time.sleep(1.5 * place)", {"start_timeout_s": 0.2}, 0, _NO_JOB),
        (
            "place == 0 and init(); time.sleep(600)",
            {"start_timeout_s": 0.5},
            1,
            "a rank did not call hvd.init() in time",
        ),
    ],
    ids=["signal", "ignored-sigterm", "no-init", "no-init-in-all-the-time", "not-formed"],
)
def test_the_end_of_a_job_is_reported_with_its_reason(start_job, body, graces, code, reason):
    place = "place = int(os.environ['HVDTUNE_RANK'])\n"
    report = start_job(place + body, options=JobOptions(**_SHORT | graces)).wait()
    assert (report.returncode, report.reason) == (code, reason)


def test_a_rank_that_succeeds_early_leaves_the_others_their_time(start_job):
    body = "init(); time.sleep(float(os.environ['HVDTUNE_RANK'])); print('done')"
    job = start_job(body)
    assert job.wait().returncode == 0
    assert job.tail(1) == ("done",)


def test_a_rank_that_the_others_have_given_up_does_not_keep_the_job(write_script, gone):
    body = """
import os, signal
import torch
import hvdtune.torch as hvd
from hvdtune.errors import RankLostError
hvd.init()
if hvd.rank() == 1:
    os.kill(os.getpid(), signal.SIGSTOP)
try:
    while True:
        hvd.allreduce(torch.ones(1))
except RankLostError as error:
    print(error.rank)
"""
    command = (sys.executable, write_script(body))
    plan = JobPlan(command, plan_slots(parse_hosts("localhost:2"), 2), "rank.py")
    with start_ranks(plan, {}, JobOptions(heartbeat_timeout_s=0.5, **_SHORT)) as job:
        report = job.wait()
    assert job.tail(0) == ("1",)
    assert (report.returncode, report.rank) == (1, 1)
    assert report.reason.startswith("rank 1 had not ended when all others had: rank 1 ")
    assert gone(job.pids[1])


def test_what_the_ranks_started_ends_with_them(start_job, gone):
    body = """
import subprocess
init()
print(subprocess.Popen(["sleep", "600"]).pid)
"""
    job = start_job(body, ranks=1)
    report = job.wait()
    assert report.returncode == 0
    assert gone(int(report.tail[0]))


def test_terminate_ends_all_ranks_and_says_so(start_job, gone):
    job = start_job("init(); print('up'); time.sleep(600)")
    while job.next_event(0.1) is None:
        pass
    job.terminate()
    assert job.poll().returncode == 128 + signal.SIGTERM
    assert all(gone(pid) for pid in job.pids)


def test_leaving_the_context_after_an_error_leaves_no_process(start_job, gone):
    job = start_job("init(); time.sleep(600)")
    with pytest.raises(RuntimeError), job:
        raise RuntimeError
    assert all(gone(pid) for pid in job.pids)


def test_events_are_kept_for_next_event_while_the_end_is_polled(start_job):
    job = start_job("init()", ranks=1)
    while job.poll() is None:
        psutil.Process(job.pids[0])
        threading.Event().wait(0.02)
    assert type(job.next_event(0)).__name__ == "Formed"
    assert job.poll().returncode == 0


def test_a_writer_whose_disk_is_full_is_dropped_and_named(start_job):
    def full(stream, text):
        raise OSError(28, "No space left on device")

    job = start_job("init(); print('x' * 1000000)", ranks=1, writers=(full,))
    assert job.wait().returncode == 0
    assert job.write_error == "output was not kept: No space left on device"


@pytest.mark.parametrize(
    ("body", "tail"),
    [
        ("init(); [print(n) for n in range(100)]", ("97", "98", "99")),
        ("init(); print(sys.executable)", (sys.executable,)),
    ],
    ids=["the-last-lines-only", "python-scripts-run-under-this-interpreter"],
)
def test_the_last_lines_of_a_rank_are_kept(start_job, body, tail):
    assert start_job(body, ranks=1, options=JobOptions(tail_lines=3)).wait().tail == tail


def test_a_program_that_is_not_there_is_a_launch_error_and_leaves_nothing(tmp_path):
    class Silent:
        address = "127.0.0.1:1"

        def __init__(self, key, size, start_timeout_s):
            pass

        def next_event(self, timeout_s):
            return None

        def close(self):
            pass

    plan = JobPlan((str(tmp_path / "absent"),), (Slot(0, "localhost", 0, 1, 0, 1),), "absent")
    with pytest.raises(LaunchError, match="cannot start"):
        start_ranks(plan, {}, JobOptions(), open_channel=Silent)


def test_descriptors_of_the_launcher_are_not_left_open(start_job):
    gc.collect()  # what other tests have left is closed now, not in between
    before = open_descriptors()
    start_job("init()").wait()
    assert open_descriptors() - before == set()


def open_descriptors():
    """By number and what they are."""
    found = set()
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the listing's own
            found.add((number, os.readlink(f"/proc/self/fd/{number}")))
    return found


def test_a_setting_becomes_variables():
    assert setting_environ({"cycle_time_ms": 0.5, "cache_enabled": True, "chunk_bytes": 65536}) == {
        "HVDTUNE_CYCLE_TIME_MS": "0.5",
        "HVDTUNE_CACHE_ENABLED": "1",
        "HVDTUNE_CHUNK_BYTES": "65536",
    }
