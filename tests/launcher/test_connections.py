"""Services go on whatever goes wrong with one connection, or while the system is short of room."""

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import closing, suppress
from pathlib import Path

import psutil
import pytest

from hvdtune.core.job import proof
from hvdtune.launcher.nodes import connections
from hvdtune.launcher.nodes.admission import Admission
from hvdtune.launcher.nodes.serving import _Agents
from hvdtune.launcher.nodes.way import NodeWay
from hvdtune.launcher.relay import relay_command
from hvdtune.launcher.spawn import sealed_file

_KEY = b"k" * 32

# Each starts a service and prints an address whose connections it answers.
_SERVICES = {
    "admission": """
from hvdtune.core.job import proof
from hvdtune.launcher.nodes.admission import Admission
listener = socket.create_server(("127.0.0.1", 0), backlog=128)
address = listener.getsockname()[1]
kept = []
Admission(listener, b"k" * 32, proof.RANK, 3, lambda *proved: kept.append(proved))
""",
    "preflight": """
from hvdtune.launcher.preflight.way import open_doors
address = open_doors(["127.0.0.1"], b"k" * 32, 3)["127.0.0.1"]
""",
    "control": """
from hvdtune.launcher import control
from hvdtune.launcher.control import JobState, open_control
class Job:
    state = JobState("train.py", 2)
service = open_control(Job())
address = next(name for pid, name in control._names() if pid == os.getpid())
""",
    "dashboard": """
from flask import Flask
from hvdtune.dashboard.server import Server
listener = socket.create_server(("127.0.0.1", 0))
address = listener.getsockname()[1]
threading.Thread(target=Server("127.0.0.1", Flask("app"), listener).serve_forever).start()
""",
}
_BODY = """
import os, resource, socket, sys, threading, time
{service}
if os.geteuid() == 0:
    os.chdir("/")
    os.setuid(54321)  # root may start any number of threads
print(address, flush=True)
for line in sys.stdin:
    words = line.split()
    if words[0] == "files":
        taken = []
        try:
            while True:
                taken.append(os.open("/dev/null", os.O_RDONLY))
        except OSError:
            pass
    elif words[0] == "threads":
        was = resource.getrlimit(resource.RLIMIT_NPROC)
        resource.setrlimit(resource.RLIMIT_NPROC, (1, was[1]))
    elif words[0] == "wait":
        before = time.process_time()
        time.sleep(float(words[1]))
        print(time.process_time() - before, flush=True)
        continue
    elif words[0] == "again":
        if words[1] == "files":
            for fd in taken:
                os.close(fd)
        else:
            resource.setrlimit(resource.RLIMIT_NPROC, was)
    print("done", flush=True)
os._exit(0)
"""


class Service:
    """A service in a process of its own, which does what its stdin says."""

    def __init__(self, name):
        self._is_local = name == "control"
        body = _BODY.format(service=_SERVICES[name])
        self._process = subprocess.Popen(
            ["sh", "-c", 'ulimit -n 64; exec "$0" -c "$1"', sys.executable, body],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._address = self._process.stdout.readline().strip()

    def tell(self, line):
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()

    def connect(self):
        if self._is_local:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            connection.connect(f"\0{self._address}")
        else:
            connection = socket.create_connection(("127.0.0.1", int(self._address)))
        connection.settimeout(60)
        return connection

    def answers(self, connection):
        """Whether the service reads from this connection, and then hangs up or answers."""
        with connection, suppress(ConnectionResetError, BrokenPipeError):
            connection.sendall(b"x" * 70000 if not self._is_local else b"{}")
            connection.recv(100)
        return True

    def close(self):
        self._process.kill()
        self._process.communicate()


@pytest.fixture(params=_SERVICES)
def service(request):
    with closing(Service(request.param)) as service:
        yield service


def test_a_service_without_a_descriptor_to_spare_waits_and_goes_on(service):
    assert service.tell("files") == "done"
    connection = service.connect()  # in the queue, where it stays
    assert float(service.tell("wait 1")) < 0.3  # of its own processor time: it does not spin
    assert service.tell("again files") == "done"
    assert service.answers(connection)


@pytest.mark.parametrize("name", [name for name in _SERVICES if name != "control"])
def test_a_connection_without_a_thread_is_closed_and_the_next_one_answered(name):
    with closing(Service(name)) as service:
        assert service.tell("threads") == "done"
        with service.connect() as connection:
            assert connection.recv(1) == b""
        assert service.tell("again threads") == "done"
        assert service.answers(service.connect())


def test_what_goes_wrong_with_one_connection_is_said_and_costs_only_that(capfd):
    connections.report.cache_clear()
    came = []

    def admitted(connection, session):
        came.append(connection)
        if len(came) == 1:
            raise ValueError("a fault")

    listener = socket.create_server(("127.0.0.1", 0))
    address = listener.getsockname()
    with closing(Admission(listener, _KEY, proof.RANK, 3, admitted)):
        first, _ = proof.dial(address, _KEY, proof.RANK, 3, 60)
        with first:
            assert first.recv(1) == b""
        second, _ = proof.dial(address, _KEY, proof.RANK, 3, 60)
        with second:
            while len(came) < 2:
                time.sleep(0.01)
            came[1].sendall(b"y")
            assert second.recv(1) == b"y"
            came[1].close()
    said = capfd.readouterr().err
    assert said == "hvdtune: warning: a connection was closed (ValueError: a fault)\n"


@pytest.fixture
def agents():
    command = ("sh", "-c", "touch started; sleep 1000")
    with closing(_Agents("127.0.0.1", _KEY, 3, command)) as agents:
        yield agents


def _timers(port):
    """The timers of established connections to or from this port; 2 is that of keepalive."""
    timers = []
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, remote, state, _, timer, *_ = line.split()
        if state == "01" and f"{port:04X}" in (local[-4:], remote[-4:]):
            timers.append(int(timer.partition(":")[0]))
    return timers


def _await(condition):
    give_up_s = time.monotonic() + 60
    while not condition() and time.monotonic() < give_up_s:
        time.sleep(0.02)
    assert condition()


def test_a_ranks_connection_is_probed_at_both_ends_and_its_agent_reaped(
    agents, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    before = set(psutil.Process().children())  # servers of the whole run

    def started():
        return set(psutil.Process().children()) - before

    with sealed_file("key", _KEY) as key:
        names = ("HVDTUNE_INTERFACE", "HVDTUNE_KEY_FD")
        way = NodeWay(3, "127.0.0.1", agents.port, key, (b"1" * 32).hex(), names)
        words = relay_command("host", (), 60, (), (), way)
        environ = os.environ | {"HVDTUNE_INTERFACE": "lo", "HVDTUNE_KEY_FD": "9"}
        relay = subprocess.Popen(words, pass_fds=(key,), env=environ)
    _await((tmp_path / "started").exists)
    _await(lambda: _timers(agents.port) == [2, 2])
    assert len(started()) == 2
    relay.terminate()
    assert relay.wait(60) == -signal.SIGTERM
    _await(lambda: not started())
