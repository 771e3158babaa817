"""Stops a rank in or after an allreduce, and lets it go on once it was given up.

    python -m tests.parallel.stopped_rank_job PLACE SIZE MEMORY TRANSPORT

MEMORY, where the tensor lies, is `private` or `shared`. The one line of output is JSON: what rank 1
did once it was allowed to go on, and for every survivor the error that it raised, how many elements
of its memory changed after it had used it again, and whether it could begin anew.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tests.parallel import failpoint_job  # puts the core with failpoints in place

VICTIM = 1
ELEMENTS = 2_000_000
PATIENCE_S = 60.0


def reduce_in(memory: str) -> Any:
    import torch

    from hvdtune.core.rank import runtime

    if memory == "private":
        return torch.ones(ELEMENTS)
    return torch.frombuffer(runtime.shared_buffer(4 * ELEMENTS), dtype=torch.float32).fill_(1)


def rank_main(memory: str, folder: Path, config: Any, results: Connection) -> None:
    import torch

    import hvdtune.torch as hvd
    from hvdtune.core import _native
    from hvdtune.core.rank import runtime
    from hvdtune.errors import RankLostError
    from tests.kit.configs import make_config

    torch.set_num_threads(1)
    # So dear are copies of its own that the kernel copies between processes.
    costs = _native.default_host_costs() | {"copy_ns": 1e4, "far_copy_ns": 1e4}
    runtime.init(config=make_config(config, host_costs=costs))
    tensor = reduce_in(memory)
    try:
        for _ in range(2):  # the others may be done with the first one when it stops
            hvd.allreduce_(tensor, op=hvd.Sum, name="gradient")
            if config.place.rank == VICTIM:
                break
    except RankLostError as error:
        outcome: dict[str, Any] = {"rank": error.rank, "text": str(error)}
    else:
        results.send("success")
        return
    if config.place.rank == VICTIM:
        results.send("RankLostError")
        return
    tensor.fill_(7)
    results.send("has used its memory again")
    deadline = time.monotonic() + PATIENCE_S
    while not (folder / "over").exists():
        assert time.monotonic() < deadline, "nobody said that rank 1 had gone on"
        time.sleep(0.01)
    outcome["changed"] = int((tensor != 7).sum())
    hvd.shutdown()
    runtime.init(config=make_config())
    outcome["anew"] = hvd.allreduce(torch.ones(1), op=hvd.Sum).item()
    hvd.shutdown()
    results.send(outcome)


def receive(results: Connection) -> Any:
    assert results.poll(PATIENCE_S), "a rank is silent"
    return results.recv()


def end_of_victim(job: failpoint_job.Job) -> str:
    """Let rank 1 go on and return what it reports, or how it ended."""
    process = job.processes[VICTIM]
    if process.is_alive():
        os.kill(process.pid, signal.SIGCONT)
    try:
        return receive(job.results[VICTIM])
    except EOFError:
        process.join()
        return signal.Signals(-process.exitcode).name if process.exitcode < 0 else "ended"


def run(place: str, size: int, memory: str, transport: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plan = failpoint_job.Plan(place, "stop", VICTIM, 1, transport, None)
        main = functools.partial(rank_main, memory, folder)
        job = failpoint_job.Job(plan, folder / "fired", size, main)
        try:
            survivors = [results for rank, results in enumerate(job.results) if rank != VICTIM]
            for results in survivors:
                said = receive(results)
                assert said == "has used its memory again", said
            assert (folder / "fired").exists()
            victim = end_of_victim(job)
            (folder / "over").touch()
            return {"victim": victim, "survivors": [receive(results) for results in survivors]}
        finally:
            job.end()


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1], int(sys.argv[2]), *sys.argv[3:5])))
