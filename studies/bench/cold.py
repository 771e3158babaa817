"""An allreduce after a while of computing, as a training step calls it: hvdtune against gloo.

    python -m studies.bench.cold                        # 8 launches, about 4 minutes
    python -m studies.bench.cold --launches 2 --compute 5 --sizes 4
    python -m studies.bench.cold --trace                # also where the processors were

In a loop that does nothing but reduce, every thread is awake, every cache is warm, and both ranks
have settled on a processor each. Here every rank computes for some milliseconds first, with as many
threads as torch takes by itself, so that nothing of that is given and all processors are in use;
then all ranks call at one instant, which they have agreed on through memory that they share. What
is timed is from the last rank's call, which may be late since the processors are in use, to the
last rank's return. hvdtune's `hvd.allreduce_` and
torch.distributed's `all_reduce` over gloo take turns in the same processes.

Where the scheduler happens to put the threads of a launch can last as long as the launch. So there
are several launches, half of them with each rank's threads bound to a processor of its own, and
shown are: the median over launches of each launch's median, the middle half of all samples, and
the median of the worst launch; then the same of gloo, and the ratios of the medians.
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import json
import math
import mmap
import multiprocessing
import os
import statistics
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from hvdtune.core.config.environment import Config
from studies.bench.job import job

KIB, MIB = 1 << 10, 1 << 20
SIZES: Final = [4, 64 * KIB, MIB]
COMPUTE_MS: Final = [1.0, 5.0, 20.0]
PEERS: Final = ("hvdtune", "gloo")
_libc: Final = ctypes.CDLL(None)
_SLOT: Final = struct.Struct("=qd")  # a rank's turn, and when its last call ended

Case = tuple[float, int]  # milliseconds of computing, bytes
Samples = dict[str, list[list[float]]]  # by peer: for each launch, seconds of each call


class Meeting:
    """Where ranks tell each other that they are ready: a turn's calls start together.

    Looking costs no system call, so that the ranks compute until the instant itself.
    """

    def __init__(self, path: str, rank: int, size: int) -> None:
        with open(path, "r+b") as file:
            self._memory = mmap.mmap(file.fileno(), size * _SLOT.size)
        self._rank, self._size, self._turn = rank, size, 0

    def await_start(self, work: Callable[[], object], compute_s: float) -> float:
        """Works until all ranks have ended their last turn and `compute_s` more has passed."""
        self._turn += 1
        _SLOT.pack_into(self._memory, self._rank * _SLOT.size, self._turn, time.monotonic())
        start = math.inf
        while (now := time.monotonic()) < start:
            if start == math.inf:
                slots = [
                    _SLOT.unpack_from(self._memory, rank * _SLOT.size) for rank in range(self._size)
                ]
                if all(turn >= self._turn for turn, _ in slots):
                    start = max(ended for _, ended in slots) + compute_s
            if start - now > 100e-6:
                work()
        return start


def work(
    config: Config, folder: str, cases: list[Case], rounds: int, core: int, threads: int, pipe: Any
) -> None:
    """A rank: sends for each case and peer when each of its calls began and returned."""
    if core >= 0:
        os.sched_setaffinity(0, {core})
        threads = 1
    import torch
    import torch.distributed as dist

    import hvdtune.torch as hvd
    from hvdtune.core.rank import runtime

    if threads:
        torch.set_num_threads(threads)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/store",
        rank=config.place.rank,
        world_size=config.place.size,
    )
    runtime.init(config=config)
    matrix = torch.randn(128, 128)
    meeting = Meeting(f"{folder}/meeting", config.place.rank, config.place.size)
    calls: dict[str, Callable[[torch.Tensor], object]] = {
        "hvdtune": lambda tensor: hvd.allreduce_(tensor, op=hvd.Sum, name="cold"),
        "gloo": dist.all_reduce,
    }
    for case in cases:
        compute_s, size = case[0] / 1000, case[1]
        for index in range(2 * (rounds + 1)):
            peer = PEERS[(index + index // 2) % 2]
            tensor = torch.full((max(1, size // 4),), config.place.rank + 1.0)
            start = meeting.await_start(lambda: matrix @ matrix, compute_s)
            before = _processor()
            called = time.monotonic()
            calls[peer](tensor)
            returned = time.monotonic()
            if not bool((tensor == config.place.size * (config.place.size + 1) / 2).all()):
                raise SystemExit(f"rank {config.place.rank}: {peer} computed a wrong sum")
            # A round to get warm; the first call makes what is kept.
            if index >= 2:
                pipe.send((case, peer, start, called, returned, before, _processor()))
    pipe.send(None)
    runtime.shutdown()
    dist.destroy_process_group()


def _processor() -> int:
    """The one on which this thread runs."""
    return int(_libc.sched_getcpu())


def launch(given: argparse.Namespace, cases: list[Case], pinned: bool) -> Iterator[Any]:
    """One job; yields (case, peer, seconds from the last call to the last return) for each turn."""
    ranks = given.ranks
    cores = sorted(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "meeting").write_bytes(bytes(ranks * _SLOT.size))
        at = [cores[rank % len(cores)] if pinned else -1 for rank in range(ranks)]
        arguments = [(folder, cases, given.rounds, core, given.threads) for core in at]
        with job(work, arguments) as pipes:
            yield from answers_of(pipes, given.trace)


def answers_of(pipes: list[Any], trace: bool) -> Iterator[Any]:
    """Yields what `launch` does; with `trace`, prints when each rank called and returned."""
    while True:
        answers = [pipe.recv() for pipe in pipes]
        if None in answers:
            break
        case, peer, start = answers[0][:3]
        last_call = max(answer[3] for answer in answers)
        yield case, peer, max(answer[4] for answer in answers) - last_call
        if trace:
            texts = [
                f"called {1e6 * (called - start):.0f}, returned {1e6 * (returned - start):.0f}"
                f" us, on {before}>{after}"
                for _, _, _, called, returned, before, after in answers
            ]
            print(f"  {case[0]:g} ms {human(case[1])} {peer:7} {' | '.join(texts)}")


def human(size: int) -> str:
    for unit, bytes_per in (("MB", MIB), ("KB", KIB)):
        if size >= bytes_per:
            return f"{size // bytes_per} {unit}"
    return f"{size} B"


def row_of(samples: Samples, peer: str) -> str:
    """The median launch, the middle half of all calls, and the worst launch, in microseconds."""
    launches = [1e6 * statistics.median(calls) for calls in samples[peer]]
    calls = list(itertools.chain.from_iterable(samples[peer]))
    low, _, high = (1e6 * q for q in statistics.quantiles(calls, n=4))
    return f"{statistics.median(launches):8.0f} [{low:.0f}, {high:.0f}]".ljust(25) + (
        f"{max(launches):8.0f}"
    )


def ratios_of(samples: Samples) -> tuple[float, float]:
    """hvdtune's time over gloo's: of the median launch, and of the worst."""
    ours, theirs = ([statistics.median(calls) for calls in samples[peer]] for peer in PEERS)
    each = [a / b for a, b in zip(ours, theirs, strict=True)]
    return statistics.median(each), max(each)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--launches", type=int, default=8, help="for each way of binding")
    parser.add_argument("--rounds", type=int, default=15, help="calls of each peer in a launch")
    parser.add_argument("--compute", type=float, nargs="+", default=COMPUTE_MS, help="ms")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="bytes")
    parser.add_argument("--threads", type=int, default=0, help="of each rank that is not pinned")
    parser.add_argument("--binding", nargs="+", choices=["free", "pinned"], default=None)
    parser.add_argument("--trace", action="store_true", help="print every call")
    parser.add_argument("--json", type=Path, help="write all samples here")
    given = parser.parse_args()
    multiprocessing.get_context("forkserver").set_forkserver_preload(["hvdtune.torch"])
    cases = [(compute, size) for compute in given.compute for size in given.sizes]
    bindings = given.binding or ["free", "pinned"]
    results: dict[str, dict[Case, Samples]] = {
        binding: {case: {peer: [] for peer in PEERS} for case in cases} for binding in bindings
    }
    for _ in range(given.launches):
        for binding in bindings:
            for samples in results[binding].values():
                for launches in samples.values():
                    launches.append([])
            for case, peer, seconds in launch(given, cases, binding == "pinned"):
                results[binding][case][peer][-1].append(seconds)
    print(
        f"{given.ranks} ranks, {given.launches} launches of {given.rounds} calls; microseconds: "
        "median launch [middle half of the calls], worst launch"
    )
    for binding, by_case in results.items():
        print(f"\n{binding:20}{'hvdtune':25}{'worst':>8}  {'gloo':25}{'worst':>8}  of gloo, worst")
        for (compute, size), samples in by_case.items():
            middle, worst = ratios_of(samples)
            line = f"{compute:5g} ms, {human(size)}".ljust(20)
            line += "  ".join(row_of(samples, peer) for peer in PEERS)
            print(f"{line}  {middle:6.2f}x {worst:6.2f}x")
    if given.json:
        flat = [
            {"binding": binding, "compute_ms": case[0], "bytes": case[1], **samples}
            for binding, by_case in results.items()
            for case, samples in by_case.items()
        ]
        given.json.write_text(json.dumps(flat))


if __name__ == "__main__":
    sys.exit(main())
