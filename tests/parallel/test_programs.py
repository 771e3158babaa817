"""Random programs of collectives under random settings and arrival orders: the same bits, no hang.

Each program runs twice in the same processes: plainly under the default setting, and with every
rank's calls in an order of its own, with pauses, while settings change. Both must give the same
bits, and what the definitions in float64 say.
"""

import multiprocessing
import os
from contextlib import ExitStack
from multiprocessing.connection import Connection
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

import hvdtune.torch as hvd
from tests.parallel.programs import Program, Run, programs
from tests.parallel.ranks import Job, start

DEADLINE_S = 30.0
TWO_HOSTS = ["127.0.0.1", "127.0.0.1", "127.0.0.2", "127.0.0.2"]
UNEVEN_HOSTS = ["127.0.0.1", "127.0.0.1", "127.0.0.2"]
WORLDS = {
    "shm-1": (1, None, "auto"),
    "shm-2": (2, None, "auto"),
    "shm-3": (3, None, "auto"),
    "tcp-3": (3, None, "tcp"),
    "shm-two-hosts": (4, TWO_HOSTS, "auto"),
    "tcp-two-hosts": (4, TWO_HOSTS, "tcp"),
    "shm-uneven-hosts": (3, UNEVEN_HOSTS, "auto"),
    "shm-4": (4, None, "auto"),
}


def serve(pipes: list[Any]) -> None:
    """A rank: runs the programs that come until None does."""
    pipe = pipes[hvd.rank()]
    number = 0
    while (program := pipe.recv()) is not None:
        number += 1
        plain, wrong = Run(program, f"plain{number}", chaotic=False).run()
        chaotic, wrong_too = Run(program, f"chaotic{number}", chaotic=True).run()
        same = {key.partition(".")[2]: value for key, value in plain.items()} == {
            key.partition(".")[2]: value for key, value in chaotic.items()
        }
        pipe.send((same, wrong | wrong_too))


class World:
    """The ranks of a job that run one program after the other, started anew when one has failed."""

    def __init__(self, size: int, hosts: list[str] | None, transport: str) -> None:
        self._size = size
        self._options = {"hosts": hosts, "transport": transport}
        self._running = ExitStack()
        self._pipes: list[Connection] = []
        self._job: Job

    def _start(self) -> None:
        ends = [multiprocessing.Pipe() for _ in range(self._size)]
        there = [end for _, end in ends]
        self._pipes = [self._running.enter_context(end) for end, _ in ends]
        self._job = self._running.enter_context(start(serve, self._size, there, **self._options))
        for end in there:
            end.close()

    def run(self, program: Program) -> None:
        if not self._pipes:
            self._start()
        try:
            for pipe in self._pipes:
                pipe.send(program)
            for rank in range(self._size):
                self._check(rank)
        except BaseException:
            self._stop()
            raise

    def _check(self, rank: int) -> None:
        assert self._pipes[rank].poll(DEADLINE_S), f"rank {rank} hangs"
        try:
            same, wrong = self._pipes[rank].recv()
        except EOFError:
            raise AssertionError(self._first_error()) from None
        assert wrong == {}, f"rank {rank}"
        assert same, f"rank {rank} got other bits"

    def _first_error(self) -> str:
        traces = [outcome.trace for outcome in self._job.outcomes()]
        causes = [trace for trace in traces if "has shut down" not in trace]
        return "\n".join(causes or traces)

    def _stop(self) -> None:
        self._running.close()
        self._pipes = []

    def end(self) -> None:
        """Lets the ranks leave in peace."""
        for pipe in self._pipes:
            pipe.send(None)
        if self._pipes:
            errors = [outcome.error for outcome in self._job.outcomes()]
            assert errors == [None] * self._size
        self._stop()


def run_many(count: int, size: int, hosts: list[str] | None, transport: str) -> None:
    world = World(size, hosts, transport)

    @settings(max_examples=count, deadline=None, suppress_health_check=list(HealthCheck))
    @given(programs(size))
    def each(program: Program) -> None:
        world.run(program)

    each()
    world.end()


@pytest.mark.parametrize("place", ["shm-3", "shm-two-hosts", "tcp-3"])
def test_random_programs_give_the_bits_of_a_plain_run(place):
    run_many(13, *WORLDS[place])


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("place", WORLDS)
def test_many_random_programs_give_the_bits_of_a_plain_run(place):
    run_many(int(os.environ.get("HVDTUNE_TEST_PROGRAMS", "500")) // len(WORLDS), *WORLDS[place])
