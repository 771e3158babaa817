"""The agent on another host, with the test as the relay that speaks to it."""

import os
import select
import subprocess
import sys

import msgspec
import pytest

from hvdtune.launcher import agent, frames
from hvdtune.launcher.frames import Frames, RemoteJob, frame
from tests.kit import programs

# With another bound than that of users, so that no test waits for it.
_AGENT = """
import sys
from hvdtune.launcher import agent, frames
frames.SILENCE_S = 0.2
sys.exit(agent.main())
"""
_SLEEP = "import os, time; print(os.getpid(), flush=True); time.sleep(1000)"
_FLOOD = "import os; print(os.getpid(), flush=True)\nwhile True: os.write(1, bytes(9999))"


@pytest.fixture
def start(tmp_path):
    """Starts an agent with a rank of this Python text; returns it, and what it says."""
    started = []

    def start_(body):
        process = subprocess.Popen(
            [sys.executable, "-c", _AGENT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=programs.environ(),
        )
        started.append(process)
        variables = programs.environ(HVDTUNE_RENDEZVOUS="127.0.0.1:1")
        command = [os.fsencode(word) for word in (sys.executable, "-c", body)]
        environ = {os.fsencode(name): os.fsencode(value) for name, value in variables.items()}
        job = RemoteJob(command, os.fsencode(tmp_path), environ, {})
        os.write(process.stdin.fileno(), frame(frames.JOB, msgspec.msgpack.encode(job)))
        return process, said_by(process)

    yield start_
    for process in started:
        process.kill()
        process.communicate()


def said_by(process):
    """The agent's frames; while one is waited for, the agent hears of its launcher."""
    stdin, stdout = process.stdin.fileno(), process.stdout.fileno()
    reader, heard = None, b""
    while True:
        while not select.select([stdout], [], [], 0.02)[0]:
            os.write(stdin, frame(frames.ALIVE, b""))
        heard += os.read(stdout, 1 << 16)
        if reader is None and frames.MAGIC in heard:
            reader, heard = Frames(), heard.partition(frames.MAGIC)[2]
        if reader is not None:
            yield from reader.feed(heard)
            heard = b""


@pytest.mark.parametrize("body", [_SLEEP, _FLOOD], ids=["quiet", "to-nobody-who-reads"])
def test_a_rank_ends_when_nothing_is_heard_of_its_launcher(start, gone, body):
    process, said = start(body)
    pid = next(int(payload.split()[0]) for kind, payload in said if kind == frames.OUT)
    assert gone(pid)
    assert process.wait(60) == 1


@pytest.fixture
def relay():
    """The agent's end of two pipes, the test's ends of them, and a clock to be set."""

    class Clock:
        now_s = 0.0

    ours, target = os.pipe()
    source, theirs = os.pipe()
    end = agent._Relay(source, target, clock=lambda: Clock.now_s)
    yield end, ours, theirs, Clock
    for number in (ours, target, source, theirs):
        os.close(number)


def test_the_bound_counts_from_the_last_word(relay):
    end, _, theirs, clock = relay
    for _ in range(3):
        clock.now_s += frames.SILENCE_S
        assert end.take(0) == []
        os.write(theirs, frame(frames.ALIVE, b""))
        assert end.take(0) == []
    os.write(theirs, frame(frames.SIGNAL, b"\x0f"))
    clock.now_s += 2 * frames.SILENCE_S  # it came while this process was stopped
    assert end.take(0) == [(frames.SIGNAL, b"\x0f")]
    clock.now_s += frames.SILENCE_S + 1
    with pytest.raises(agent._HungUpError):
        end.take(0)


def test_nobody_is_told_for_longer_than_the_bound(relay, monkeypatch):
    end, ours, _, clock = relay
    asked = []

    def select_(reading, writing, *rest):
        asked.append(writing)
        clock.now_s += frames.SILENCE_S / 4
        return [], [], []

    monkeypatch.setattr(agent.select, "select", select_)
    with pytest.raises(agent._HungUpError):
        end.send(frames.OUT, bytes(1 << 20))
    assert asked[0]  # it waited for room
    assert os.read(ours, 99)


@pytest.mark.parametrize(
    ("launcher", "own"),
    [("127.0.0.1", "127.0.0.1"), ("::1", "::1"), ("fe80::1", "fe80::2%eth5")],
    ids=["ipv4", "ipv6", "link-local"],
)
def test_a_link_local_launcher_is_reached_by_the_link_that_ssh_came_by(monkeypatch, launcher, own):
    monkeypatch.setenv("SSH_CONNECTION", "fe80::1%eth5 40000 fe80::2%eth5 22")
    assert agent.address_for_launcher(launcher) == own


def test_many_words_fit_into_the_bound():
    assert 4 * frames.BEAT_S <= frames.SILENCE_S
