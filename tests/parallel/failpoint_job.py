"""A job of three training ranks, one of which is killed, stopped or cut off at a place of the core.

Each run checks that no rank hangs and that every survivor either finishes with right results or
raises an error that names the rank.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import random
import signal
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from tests.parallel import failpoint_native

failpoint_native.install()  # every rank imports this module first

SIZE = 3
STEPS = 40
START_TIMEOUT_S = 4.0
RUN_TIMEOUT_S = 25.0
ACTIONS = ("kill", "stop", "reset")
HOSTS = (None, ["127.0.0.1", "127.0.0.1", "127.0.0.2"])
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["tests.parallel.failpoint_job", "hvdtune.torch"])


@dataclass(frozen=True)
class Plan:
    place: str
    action: str
    victim: int
    hit: int
    transport: str
    hosts: list[str] | None

    def __str__(self) -> str:
        layout = "2 hosts" if self.hosts else "1 host"
        where = f"{layout}, {self.transport}"
        return f"{self.action} rank {self.victim} at {self.place} #{self.hit} ({where})"


@dataclass
class Result:
    """`delays_s`: from the event to each survivor's error, of a job that had been formed."""

    plan: Plan
    fired: bool = False
    formed: bool = False
    delays_s: list[float] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)


def draw(generator: random.Random, names: list[str]) -> Plan:
    return Plan(
        place=generator.choice(names),
        action=generator.choice(ACTIONS),
        victim=generator.randrange(SIZE),
        hit=generator.choice((1, 1, 2, 3, generator.randrange(4, 60))),
        transport=generator.choice(("auto", "auto", "tcp")),
        hosts=generator.choice(HOSTS),
    )


def train() -> None:
    import torch

    import hvdtune.torch as hvd

    for step in range(STEPS):
        tensors = [torch.full((size,), float(step)) for size in (10, 3_000, 150_000)]
        handles = [
            hvd.allreduce_async_(tensor, op=hvd.Sum, name=f"gradient.{i}")
            for i, tensor in enumerate(tensors)
        ]
        for handle, tensor in zip(handles, tensors, strict=True):
            hvd.synchronize(handle)
            assert bool((tensor == SIZE * step).all())
        if step % 8 == 0:
            rows = hvd.allgather(torch.full((hvd.rank() + 1, 2), step), name="rows")
            assert rows.shape == (6, 2)
            assert hvd.broadcast(torch.tensor([hvd.rank()]), step % SIZE).item() == step % SIZE
        if step % 16 == 0:
            hvd.barrier()


def rank_main(config: Any, results: Connection) -> None:
    import torch

    import hvdtune.torch as hvd
    from hvdtune.core.rank import runtime
    from hvdtune.errors import HvdtuneError

    torch.set_num_threads(1)
    outcome: dict[str, Any] = {"error": None}
    try:
        runtime.init(config=config)
        train()
    except HvdtuneError as error:
        outcome = {
            "error": type(error).__name__,
            "at_ns": time.monotonic_ns(),
            "rank": getattr(error, "rank", -1),
            "text": str(error),
        }
    hvd.shutdown()
    results.send(outcome)


class Job:
    def __init__(
        self,
        plan: Plan,
        fired_path: Path,
        size: int = SIZE,
        main: Callable[[Any, Connection], None] = rank_main,
    ) -> None:
        from hvdtune.core import _native
        from tests.kit.configs import make_config

        key = os.urandom(32)
        self.plan = plan
        self.server = _native.JobServer(key, size, start_timeout_s=START_TIMEOUT_S)
        self.formed = False
        self.processes: list[Any] = []
        self.results: list[Connection] = []
        for rank in range(size):
            receive, send = _context.Pipe(duplex=False)
            point = f"{plan.place}={plan.action}@{plan.hit}:{fired_path}"
            config = make_config(
                rank=rank,
                size=size,
                host=plan.hosts[rank] if plan.hosts else "localhost",
                rendezvous_address="127.0.0.1",
                rendezvous_port=self.server.port,
                key=key,
                transport=plan.transport,
                start_s=START_TIMEOUT_S,
                failpoint=point if rank == plan.victim else "",
            )
            process = _context.Process(target=main, args=(config, send))
            process.start()
            send.close()
            self.processes.append(process)
            self.results.append(receive)

    def hear_server(self) -> None:
        while event := self.server.next_event(0.0):
            self.formed = self.formed or event["type"] == "formed"

    def outcomes(self, fired_path: Path) -> dict[int, dict[str, Any] | None]:
        """By rank: what it sent, None if it died. A stopped or silent rank has no entry."""
        done: dict[int, dict[str, Any] | None] = {}
        deadline = time.monotonic() + RUN_TIMEOUT_S
        while len(done) < SIZE and time.monotonic() < deadline:
            pending = {r: c for r, c in enumerate(self.results) if r not in done}
            stopped = self.plan.action == "stop" and fired_path.exists()
            if stopped and set(pending) == {self.plan.victim}:
                break
            ready = wait(list(pending.values()), 0.2)
            for rank, connection in pending.items():
                if connection not in ready:
                    continue
                try:
                    done[rank] = connection.recv()
                except EOFError:
                    done[rank] = None
                    self.hear_server()
                    if not self.formed:  # as a launcher does
                        self.server.abort(f"rank {rank} ended before the job was formed")
        self.hear_server()
        return done

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.join()
        for connection in self.results:
            connection.close()
        self.server.close()


def check(result: Result, outcomes: dict[int, dict[str, Any] | None], fired_ns: int) -> None:
    plan = result.plan
    for rank in range(SIZE):
        is_victim = result.fired and rank == plan.victim
        if rank not in outcomes:
            if not (is_victim and plan.action == "stop"):
                result.broken.append(f"rank {rank} hangs")
            continue
        outcome = outcomes[rank]
        if outcome is None:
            if not (is_victim and plan.action == "kill"):
                result.broken.append(f"rank {rank} died")
        elif outcome["error"] is not None and not is_victim:
            check_error(result, rank, outcome, fired_ns)


def check_error(result: Result, rank: int, outcome: dict[str, Any], fired_ns: int) -> None:
    plan = result.plan
    said = f"rank {rank} raised {outcome['error']}: {outcome['text']}"
    if not result.fired:
        result.broken.append(said)
    elif result.formed and outcome["error"] != "RendezvousError":
        result.delays_s.append((outcome["at_ns"] - fired_ns) / 1e9)
        # Of a connection that is reset, either end may be the one at fault.
        either = plan.action == "reset"
        right = outcome["rank"] == plan.victim or (either and outcome["rank"] >= 0)
        if outcome["error"] != "RankLostError" or not right:
            result.broken.append(said)
    elif f"rank {plan.victim}" not in outcome["text"] and plan.action != "reset":
        result.broken.append(said)


def run(plan: Plan) -> Result:
    with tempfile.TemporaryDirectory() as folder:
        fired_path = Path(folder) / "fired"
        result = Result(plan)
        job = Job(plan, fired_path)
        try:
            outcomes = job.outcomes(fired_path)
            result.fired = fired_path.exists()
            result.formed = job.formed
            fired_ns = int(fired_path.read_text()) if result.fired else 0
            if (
                result.fired
                and plan.action == "stop"
                and plan.victim not in outcomes
                and job.processes[plan.victim].is_alive()
            ):
                os.kill(job.processes[plan.victim].pid, signal.SIGKILL)
            check(result, outcomes, fired_ns)
        finally:
            job.end()
    return result


def quantile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else math.nan


def soak(runs: int, seed: int, verbose: bool = False) -> dict[str, Any]:
    """Draws runs until so many have fired."""
    names = failpoint_native.places()
    warm_up = _context.Process(target=int)  # imports torch once
    warm_up.start()
    warm_up.join()
    generator = random.Random(seed)
    results: list[Result] = []
    drawn = 0
    while len(results) < runs:
        result = run(draw(generator, names))
        drawn += 1
        if result.fired:
            results.append(result)
        for line in result.broken:
            print(f"BROKEN {result.plan}: {line}", flush=True)
        if verbose:
            print(f"{result.plan} fired={result.fired} formed={result.formed} {result.delays_s}")
        assert drawn < 10 * runs + 100, "failpoints are hardly ever reached"
    report: dict[str, Any] = {"runs": len(results), "drawn": drawn, "places": len(names)}
    report["reached"] = len({result.plan.place for result in results})
    report["broken"] = [f"{r.plan}: {line}" for r in results for line in r.broken]
    for action in ACTIONS:
        mine = [r for r in results if r.plan.action == action]
        delays = [max(r.delays_s) for r in mine if r.delays_s]
        report[action] = {
            "runs": len(mine),
            "before_the_job_formed": sum(not r.formed for r in mine),
            "raised": len(delays),
            "p50_s": round(quantile(delays, 0.5), 4),
            "p99_s": round(quantile(delays, 0.99), 4),
            "max_s": round(max(delays, default=math.nan), 4),
        }
    return report
