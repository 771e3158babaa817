import os
import signal
import subprocess
import sys
import time

import pytest

from tests.kit.programs import environ

_BODY = """
import signal, subprocess
signal.signal(signal.SIGTERM, {action})
child = subprocess.Popen(["sleep", "600"])
init()
print("pids", os.getpid(), child.pid)
time.sleep(600)
"""


def _start(stand_in, script, ranks=2):
    launcher = subprocess.Popen(
        [sys.executable, str(stand_in), str(ranks), sys.executable, script],
        stdout=subprocess.PIPE,
        text=True,
        env=environ(),
    )
    pids = []
    while len(pids) < 2 * ranks:
        pids += [int(pid) for pid in launcher.stdout.readline().partition("pids")[2].split()]
    return launcher, pids


@pytest.mark.parametrize("action", ["signal.SIG_DFL", "signal.SIG_IGN"])
@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGKILL, -signal.SIGKILL),
        (signal.SIGTERM, 128 + signal.SIGTERM),
        (signal.SIGINT, 128 + signal.SIGINT),
        (signal.SIGHUP, 128 + signal.SIGHUP),
    ],
)
def test_no_rank_and_no_grandchild_outlives_the_launcher(
    stand_in, write_script, gone, number, code, action
):
    launcher, pids = _start(stand_in, write_script(_BODY.format(action=action)))
    with launcher:
        launcher.send_signal(number)
        assert launcher.wait() == code
        assert all(gone(pid) for pid in pids)


def test_stopped_ranks_end_with_a_killed_launcher(stand_in, write_script, gone):
    launcher, pids = _start(stand_in, write_script(_BODY.format(action="signal.SIG_DFL")))
    with launcher:
        os.kill(pids[0], signal.SIGSTOP)
        launcher.kill()
        launcher.wait()
        assert all(gone(pid) for pid in pids)


def test_a_second_interrupt_does_not_wait_for_the_grace(stand_in, write_script, gone, monkeypatch):
    monkeypatch.setenv("STAND_IN_GRACE_S", "600")
    body = _BODY.format(action="lambda *_: print('asked')")
    launcher, pids = _start(stand_in, write_script(body))
    with launcher:
        launcher.send_signal(signal.SIGINT)
        assert any("asked" in line for line in iter(launcher.stdout.readline, ""))
        time.sleep(0.2)  # sooner it would be the same request
        launcher.send_signal(signal.SIGINT)
        assert launcher.wait() == 130
        assert all(gone(pid) for pid in pids)


def test_a_reader_that_goes_away_does_not_end_the_job(stand_in, write_script):
    script = write_script("init(); print('first'); time.sleep(0.5); print('second')")
    launcher = subprocess.Popen(
        [sys.executable, str(stand_in), "1", sys.executable, script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environ(),
    )
    assert launcher.stdout.readline() == "[0]<stdout>:first\n"
    launcher.stdout.close()
    assert launcher.stderr.read() == ""
    launcher.stderr.close()
    assert launcher.wait() == 0
