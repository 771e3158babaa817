import sys
import time

import psutil
import pytest

from hvdtune.core.config.environment import own_environ
from hvdtune.errors import LaunchError
from hvdtune.launcher.ranks import start_command


def start(body, environs=({},), writers=()):
    command = (sys.executable, "-c", body)
    return start_command(command, [own_environ() | each for each in environs], writers)


def test_every_process_has_an_environment_of_its_own(collected):
    body = "import os; print('place', os.environ['RANK'])"
    with start(body, ({"RANK": "0"}, {"RANK": "1"}), [collected]) as command:
        assert command.wait().returncode == 0
    lines = sorted(collected.text["stdout"].splitlines())
    assert lines == ["[0]<stdout>:place 0", "[1]<stdout>:place 1"]


def test_the_wall_time_ends_with_the_last_process_and_not_when_somebody_asks():
    with start("import time; time.sleep(0.2)") as command:
        command.wait_for_change(10)
        first = command.wall_s
        time.sleep(0.2)
        assert command.wait().returncode == 0
        assert command.wall_s == first >= 0.2


def test_a_process_that_fails_ends_the_others_and_is_named_with_its_last_lines():
    body = "import os, time; print('bad'); os.environ['R'] == '1' and exit(7); time.sleep(600)"
    with start(body, ({"R": "0"}, {"R": "1"})) as command:
        report = command.wait()
    assert (report.returncode, report.reason) == (7, "rank 1 exited with code 7")
    assert report.tail == ("bad",)


def test_a_command_killed_by_a_signal_is_named_with_it():
    with start("import os; os.kill(os.getpid(), 9)") as command:
        report = command.wait()
    assert (report.returncode, report.reason) == (137, "the command was killed by SIGKILL")


def test_terminate_leaves_no_process_even_of_those_that_ignore_it():
    body = "import signal, time; signal.signal(15, 1); print('up', flush=True); time.sleep(600)"
    others = set(psutil.Process().children(recursive=True))
    command = start(body)
    while not command.tail():
        command.wait_for_change(0.05)
    ours = set(psutil.Process().children(recursive=True)) - others
    assert ours
    command.terminate(grace_s=0.3)
    assert not any(process.is_running() for process in ours)
    assert command.poll().returncode == 143


def test_a_program_that_is_not_there_is_one_sentence():
    with pytest.raises(LaunchError, match="cannot start /proc/absent"):
        start_command(("/proc/absent",), ({},))
