"""Runs a function as every rank of a job, in real processes.

Ranks are forked from a server that has imported torch once, which costs milliseconds instead of the
seconds of a fresh interpreter. Those that use TensorFlow are forked from a server of their own.
"""

import multiprocessing
import os
import pickle
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from multiprocessing import forkserver
from multiprocessing.connection import Connection, wait
from typing import Any
from unittest import mock

from hvdtune.core import _native
from hvdtune.core.config.environment import Config
from tests.kit.configs import make_config
from tests.parallel.netns import Host

_TESTS = ("tests.parallel.ranks", "tests.parallel.preloaded")
CONTEXT = multiprocessing.get_context("forkserver")
# An optimizer imports torch._dynamo when it is made, which costs each rank seconds.
CONTEXT.set_forkserver_preload(["hvdtune.torch", "torch._dynamo", *_TESTS])


class Server(forkserver.ForkServer):
    """A server of its own, for ranks that use what would cost each of them seconds to import.

    Imported, TensorFlow has no threads yet; its runtime starts with a rank's first operation.
    """

    def __init__(self, *modules: str, first: str = "hvdtune.torch", **variables: str) -> None:
        """Modules are imported in this order, `first` before all others."""
        super().__init__()
        self.set_forkserver_preload([first, "hvdtune.torch", *modules, *_TESTS])
        self._variables = variables

    def ensure_running(self) -> None:
        with mock.patch.dict(os.environ, self._variables):
            super().ensure_running()


TENSORFLOW = Server("hvdtune.tensorflow", "hvdtune.keras")
CONFIGS: list[Config] = []  # of this process, where it is a rank: for whoever forms its job anew


@contextmanager
def _forked_from(server: forkserver.ForkServer | None) -> Iterator[None]:
    """Fork processes started in the block from `server`; multiprocessing knows only its own."""
    usual = forkserver.connect_to_new_process
    if server is not None:
        forkserver.connect_to_new_process = server.connect_to_new_process
    try:
        yield
    finally:
        forkserver.connect_to_new_process = usual


@dataclass
class Outcome:
    """What one rank returned or raised, or that it was killed (`value` and `error` None)."""

    rank: int
    value: Any = None
    error: BaseException | None = None
    trace: str = ""


@dataclass
class Job:
    processes: list[Any]
    results: list[Connection]
    server: _native.JobServer

    def pid(self, rank: int) -> int:
        return self.processes[rank].pid

    def outcome(self, rank: int) -> Outcome:
        """Return what this rank sent; raises EOFError if it died before it sent anything."""
        return pickle.loads(self.results[rank].recv_bytes())

    def outcomes(self, timeout_s: float = 120.0) -> list[Outcome]:
        """Every rank's outcome, in rank order; fails when a rank is still silent at the end."""
        done: dict[int, Outcome] = {}
        pending = dict(enumerate(self.results))
        while pending:
            ready = wait(list(pending.values()), timeout_s)
            assert ready, f"ranks {sorted(pending)} neither returned nor died in {timeout_s} s"
            for rank, connection in list(pending.items()):
                if connection not in ready:
                    continue
                del pending[rank]
                try:
                    done[rank] = self.outcome(rank)
                    if done[rank].error is not None:
                        self.tell_of_death(rank)
                except EOFError:
                    done[rank] = Outcome(rank)
                    self.tell_of_death(rank)
        for process in self.processes:
            process.join(timeout_s)
        return [done[rank] for rank in sorted(done)]

    def tell_of_death(self, rank: int) -> None:
        """Report a rank's death as a launcher does, because nobody misses one that never joined."""
        formed = False
        while event := self.server.next_event(0.0):
            formed = formed or event["type"] == "formed"
        if not formed:
            self.server.abort(f"rank {rank} ended before the job was formed")


def _main(
    body: Callable[..., Any],
    config: Config,
    place: Host | None,
    variables: Mapping[str, str],
    arguments: tuple,
    results: Connection,
) -> None:
    import torch

    import hvdtune.torch as hvd
    from hvdtune.core.rank import runtime

    torch.set_num_threads(1)
    os.environ.update(variables)
    try:
        if place is not None:
            place.enter()
        CONFIGS.append(config)
        runtime.init(config=config)
        try:
            outcome = Outcome(config.place.rank, body(*arguments))
        finally:
            hvd.shutdown()
    except BaseException as error:
        outcome = Outcome(config.place.rank, None, error, traceback.format_exc())
    # Plain pickle: multiprocessing's own would share tensors through a process that ends here.
    try:
        data = pickle.dumps(outcome)
    except Exception as error:
        # Else this rank would look killed. pytest's own exceptions cannot be pickled.
        trace = outcome.trace or traceback.format_exc()
        data = pickle.dumps(Outcome(config.place.rank, None, AssertionError(repr(error)), trace))
    results.send_bytes(data)
    results.close()


@contextmanager
def start(
    body: Callable[..., Any],
    size: int,
    *arguments: Any,
    hosts: Sequence[str] | None = None,
    places: Sequence[Host] | None = None,
    variables: Sequence[Mapping[str, str]] = (),
    tensorflow: bool = False,
    forked_from: Server | None = None,
    **config: Any,
) -> Iterator[Job]:
    """The job while the block runs; its processes are ended after.

    `hosts` are names only; `places` are hosts of tests.parallel.netns, the launcher on rank 0's;
    `variables` are each rank's of the environment.
    `tensorflow`: ranks have it imported. `forked_from`: they have what this server has.
    """
    key = os.urandom(32)
    launcher = places[0].address if places else "127.0.0.1"
    with places[0].entered() if places else nullcontext():
        server = _native.JobServer(key, size, launcher)
    if places:
        hosts = [place.name for place in places]
    processes, results = [], []
    for rank in range(size):
        receive, send = CONTEXT.Pipe(duplex=False)
        place = places[rank] if places else None
        config_of_rank = make_config(
            rank=rank,
            size=size,
            host=hosts[rank] if hosts else "localhost",
            own_address=place.address if place else "",
            rendezvous_address=launcher.partition("%")[0],  # the interface is the launcher's
            rendezvous_port=server.port,
            key=key,
            **config,
        )
        own = variables[rank] if variables else {}
        process = CONTEXT.Process(
            target=_main, args=(body, config_of_rank, place, own, arguments, send)
        )
        with _forked_from(TENSORFLOW if tensorflow else forked_from):
            process.start()
        send.close()
        processes.append(process)
        results.append(receive)
    try:
        yield Job(processes, results, server)
    finally:
        server.close()
        for process in processes:
            if process.is_alive():
                process.kill()
            process.join()
        for connection in results:
            connection.close()


def run(
    body: Callable[..., Any], size: int, *arguments: Any, timeout_s: float = 120.0, **options: Any
) -> list[Any]:
    """Run `body` on `size` ranks and return each rank's result; re-raise the first error."""
    with start(body, size, *arguments, **options) as job:
        outcomes = job.outcomes(timeout_s)
    for outcome in outcomes:
        if outcome.error is not None:
            raise AssertionError(f"rank {outcome.rank} failed:\n{outcome.trace}")
        assert outcome.trace == ""
    return [outcome.value for outcome in outcomes]
