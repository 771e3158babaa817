import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from hvdtune.core.config.environment import own_environ
from hvdtune.core.job.interrupt import (
    Stopped,
    check_signals,
    defer_signals,
    resume_signals,
    stop_signals,
)
from hvdtune.launcher.ranks import start_command


class _SignalledLock:
    """A lock; once it has been taken, and before its taker knows, a signal comes."""

    def __init__(self):
        self._lock = threading.Lock()
        self.signalled = False

    def acquire(self, *how):
        taken = self._lock.acquire(*how)
        if not self.signalled:
            self.signalled = True
            os.kill(os.getpid(), signal.SIGINT)
        return taken

    def release(self):
        self._lock.release()

    def __enter__(self):
        return self.acquire()

    def __exit__(self, *_):
        self.release()


def _sleeper():
    return start_command((sys.executable, "-c", "import time; time.sleep(600)"), ({},))


@pytest.mark.parametrize("of", ["process", "event"])
def test_a_signal_in_the_middle_of_a_poll_leaves_no_lock_taken(of):
    lock = _SignalledLock()
    with stop_signals(), pytest.raises(Stopped) as stopped, _sleeper() as command:
        if of == "process":
            command._processes._numbered[0]._waitpid_lock = lock
        else:
            command._processes.output._changed._cond = threading.Condition(lock)
        assert command.poll() is None
        command.wait_for_change(0.0)
        assert lock.signalled
        command.wait_for_change(0.0)
        pytest.fail("the signal was lost")
    assert stopped.value.exit_code == 130
    assert command.poll().reason == "the command was stopped"


def test_a_signal_is_raised_at_once_where_there_is_nothing_to_end():
    with stop_signals(), pytest.raises(Stopped, match="SIGTERM"):
        os.kill(os.getpid(), signal.SIGTERM)
        pytest.fail("the signal was lost")


def test_a_signal_that_came_while_processes_were_ended_is_raised_afterwards():
    one, other = object(), object()
    with stop_signals():
        defer_signals(one)
        defer_signals(other)
        os.kill(os.getpid(), signal.SIGHUP)
        resume_signals(one)
        with pytest.raises(Stopped, match="SIGHUP"):
            resume_signals(other)
        resume_signals(other)


def test_a_signal_that_comes_twice_at_once_is_one_request_and_a_later_one_is_another():
    holder = object()
    with stop_signals():
        defer_signals(holder)
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(Stopped):
            check_signals()
        check_signals()
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(Stopped):
            check_signals()
        resume_signals(holder)


_THREE_REQUESTS = """
import os, signal, time
from hvdtune.core.job.interrupt import defer_signals, stop_signals
with stop_signals():
    defer_signals(os)
    for _ in range(3):
        time.sleep(0.2)
        print("asked", flush=True)
        os.kill(os.getpid(), signal.SIGTERM)
    print("survived")
"""
_IGNORED_AND_HANDLED = """
import os, signal
from hvdtune.core.job.interrupt import stop_signals
signal.signal(signal.SIGHUP, signal.SIG_IGN)
signal.signal(signal.SIGTERM, lambda *_: print("mine"))
with stop_signals():
    os.kill(os.getpid(), signal.SIGHUP)
    os.kill(os.getpid(), signal.SIGTERM)
print("on")
"""
_BETWEEN_TWO_INSTRUCTIONS = """
import os, signal, subprocess, sys, threading
from hvdtune import run
before = subprocess.Popen._internal_poll
def poll(self, *args, **kwargs):
    lock = self._waitpid_lock
    if lock.acquire(False):
        os.kill(os.getpid(), signal.SIGINT)
        lock.release()
        subprocess.Popen._internal_poll = before
    return before(self, *args, **kwargs)
def sleep():
    import time
    time.sleep(600)
subprocess.Popen._internal_poll = poll
try:
    run(sleep, np=1)
except KeyboardInterrupt as stop:
    print(stop)
"""


@pytest.mark.parametrize(
    ("script", "code", "said"),
    [
        pytest.param(_THREE_REQUESTS, -signal.SIGTERM, "asked\n" * 3, id="third-request-ends-it"),
        pytest.param(_IGNORED_AND_HANDLED, 0, "mine\non\n", id="earlier-handlers-stay"),
        pytest.param(_BETWEEN_TWO_INSTRUCTIONS, 0, "stopped by SIGINT\n", id="function-on-ranks"),
    ],
)
def test_a_process_that_is_signalled(script, code, said):
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=own_environ()
    )
    assert (done.returncode, done.stdout) == (code, said), done.stderr


def test_a_signal_that_nobody_could_raise_is_raised_at_the_end():
    holder = object()
    with pytest.raises(Stopped), stop_signals():
        defer_signals(holder)
        os.kill(os.getpid(), signal.SIGINT)
    resume_signals(holder)


def test_another_thread_is_not_stopped_in_place_of_the_main_one():
    holder = object()
    with stop_signals():
        defer_signals(holder)
        os.kill(os.getpid(), signal.SIGINT)
        thread = threading.Thread(target=check_signals)
        thread.start()
        thread.join()
        with pytest.raises(Stopped):
            resume_signals(holder)
