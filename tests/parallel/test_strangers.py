"""Strangers at the listening sockets of a job that is starting change nothing."""

import itertools
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.kit import programs
from tests.parallel.strangers import (
    ATTACKS,
    NONCE_BYTES,
    Address,
    Recorder,
    connect,
    hear,
    strangers,
)

# Rank 2 comes when it is let in and the others listen until then; rank 1 comes through a proxy.
TRAIN = """
import json, os, pathlib, sys, time
import numpy as np
from hvdtune.core.rank.objects import allgather_object
from hvdtune.core.rank.runtime import init

def wait_for(name):
    while not pathlib.Path(name).exists():
        time.sleep(0.01)

rank = int(os.environ["HVDTUNE_RANK"])
if rank == 1:
    os.environ["HVDTUNE_RENDEZVOUS"] = f"127.0.0.1:{sys.argv[1]}"
if rank == 2:
    wait_for("let in")
init()
descriptors = len(os.listdir("/proc/self/fd"))
pathlib.Path(f"formed {rank}").touch()
wait_for("train")
weights = np.ones(1000)
for step in range(5):
    gradient = weights * np.random.default_rng(100 * step + rank).normal(size=1000)
    weights -= 0.1 * sum(allgather_object(gradient)) / 3
print(json.dumps([rank, step, descriptors, weights.sum().hex()]))
"""


@dataclass(frozen=True)
class Listening:
    pid: int
    address: Address


@dataclass
class Run:
    folder: Path
    launcher: subprocess.Popen[str]
    recorder: Recorder

    def listening(self) -> list[Listening]:
        """Every listening socket of the launcher and all below it."""
        found = []
        process = psutil.Process(self.launcher.pid)
        for one in [process, *process.children(recursive=True)]:
            found += [
                Listening(one.pid, (socket.laddr.ip, socket.laddr.port))
                for socket in one.net_connections("inet")
                if socket.status in (psutil.CONN_LISTEN, psutil.CONN_NONE)
            ]
        return found

    def let_in(self) -> None:
        (self.folder / "let in").touch()
        for rank in range(3):
            until((self.folder / f"formed {rank}").exists)

    def train(self) -> tuple[list[Any], str]:
        """Let the ranks train and return their results, sorted, and the launcher's error output."""
        (self.folder / "train").touch()
        out, err = self.launcher.communicate()
        assert self.launcher.returncode == 0, err
        lines = [line.partition(">:")[2] for line in out.splitlines()]
        return sorted(json.loads(line) for line in lines), err


def until(condition: Callable[[], object]) -> None:
    for _ in range(6000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("waited for a minute")


@contextmanager
def starting_job(folder: Path) -> Iterator[Run]:
    """A job whose launcher and ranks 0 and 1 listen."""
    (folder / "train.py").write_text(TRAIN)
    recorder = Recorder()
    command = programs.hvdtune("run", "-np", "3", "train.py", recorder.port)
    environ = programs.environ(HVDTUNE_START_TIMEOUT_S="60")
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    launcher = subprocess.Popen(command, cwd=folder, env=environ, **pipes)
    try:
        run = Run(folder, launcher, recorder)
        until(run.listening)
        recorder.serve(run.listening()[0].address)
        until(lambda: len(run.listening()) == 3 and len(recorder.recorded) > 100)
        yield run
    finally:
        launcher.terminate()
        launcher.communicate()
        recorder.close()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Any], int]:
    """Return the ranks' last words, and the launcher's descriptors once the job is formed."""
    with starting_job(tmp_path_factory.mktemp("undisturbed")) as run:
        run.let_in()
        descriptors = psutil.Process(run.launcher.pid).num_fds()
        said, beside = run.train()
        assert beside == ""
    return said, descriptors


def test_a_job_listens_on_loopback_only_and_once_formed_to_nobody(tmp_path: Path) -> None:
    with starting_job(tmp_path) as run:
        at = run.listening()
        assert {one.address[0] for one in at} == {"127.0.0.1"}
        assert len({one.pid for one in at}) == 3
        run.let_in()
        (left,) = run.listening()
        assert left in at
        assert left.pid == run.launcher.pid
        for one in at:
            peer = connect(one.address)
            assert (peer is not None) == (one == left)
            if peer is not None:
                with peer:
                    assert hear(peer) == b""
        run.train()


# Those that are over at once, those that know something, those that keep a connection.
AT_ONCE = (
    ("garbage", "http", "huge length"),
    ("wrong key", "replay"),
    ("truncated greeting", "truncated handshake", "one byte per second"),
    ("idle",),
)


def test_every_attack_is_tried() -> None:
    assert sorted(itertools.chain(*AT_ONCE)) == sorted(ATTACKS)


@pytest.mark.slow
@pytest.mark.parametrize("names", AT_ONCE, ids=" and ".join)
def test_strangers_change_nothing(
    names: tuple[str, ...], tmp_path: Path, undisturbed: tuple[list[Any], int]
) -> None:
    expected, descriptors = undisturbed
    with starting_job(tmp_path) as run:
        addresses = [one.address for one in run.listening()]
        with ExitStack() as attacks:
            heard = [
                attacks.enter_context(strangers(ATTACKS[name], addresses, run.recorder.recorded))
                for name in names
            ]
            time.sleep(0.5)
            run.let_in()
            until(lambda: psutil.Process(run.launcher.pid).num_fds() == descriptors)
        said, beside = run.train()
    assert said == expected
    assert beside.count("\n") <= len(names)
    assert all(heard)
    # Nothing but the random number that those who know how to greet are asked to sign.
    assert {len(answer) for each in heard for answer in each} <= {0, NONCE_BYTES}
