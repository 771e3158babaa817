"""torch.distributed over hvdtune and over gloo, interleaved in the same processes.

    python -m studies.bench.distributed                # 2 ranks, some minutes
    python -m studies.bench.distributed --ranks 4
    python -m studies.bench.distributed --quick        # that it works; its figures say nothing
    python -m studies.bench.distributed --check        # exit code 1 if a bar is missed

Every rank is in two groups of all ranks, one of each backend, and calls both in turns whose order
rotates. A sample is the slowest rank's mean over a turn, a launch's figure the median of its
samples; shown are the medians over the launches and the worst launch, hvdtune's time divided by
gloo's. "asleep" computes for 5 ms before each call, so that the threads of both sleep by then. The
bars: half of gloo's time for collectives, and no launch above gloo's; 0.9 for a step of DDP and of
FSDP2, on a model of 64 layers. Run it on a quiet machine.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

KIB, MIB = 1 << 10, 1 << 20
BACKENDS: Final = ("hvdtune", "gloo")
SIZES: Final = (4, 4 * KIB, 64 * KIB, MIB, 16 * MIB, 64 * MIB)
QUICK_SIZES: Final = (4, 64 * KIB)
TURN_S: Final = 0.05
COMPUTE_S: Final = 0.005
COLLECTIVE_BAR: Final = 0.5
STEP_BAR: Final = 0.9
WIDTH: Final = 256

Call = Callable[[], Any]
Samples = dict[str, list[list[float]]]  # by what was called: seconds per round, for each backend


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--launches", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=20, help="turns of each in a launch")
    parser.add_argument("--quick", action="store_true", help="one launch of a few calls")
    parser.add_argument("--check", action="store_true", help="exit code 1 if a bar is missed")
    given = parser.parse_args()
    launches, rounds = (1, 2) if given.quick else (given.launches, given.rounds)
    sizes = QUICK_SIZES if given.quick else SIZES
    found = [launch(given.ranks, sizes, rounds) for _ in range(launches)]
    missed = show(found, given.ranks)
    return 1 if given.check and missed else 0


def launch(ranks: int, sizes: tuple[int, ...], rounds: int) -> dict[str, float]:
    """hvdtune's time divided by gloo's in a job of its own, by what was called."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        ends = [context.Pipe(duplex=False) for _ in range(ranks)]
        store = str(Path(folder, "store"))
        processes = [
            context.Process(target=work, args=(rank, ranks, store, sizes, rounds, ends[rank][1]))
            for rank in range(ranks)
        ]
        for process, (_, there) in zip(processes, ends, strict=True):
            process.start()
            there.close()
        told: list[Samples] = [here.recv() for here, _ in ends]
        for process in processes:
            process.join()
    return {what: _ratio([samples[what] for samples in told]) for what in told[0]}


def _ratio(by_rank: list[list[list[float]]]) -> float:
    """Of the medians over the rounds of the slowest rank's times."""
    ours, theirs = (
        statistics.median(map(max, zip(*(rank[at] for rank in by_rank), strict=True)))
        for at in range(len(BACKENDS))
    )
    return float(ours / theirs)


def show(found: list[dict[str, float]], ranks: int) -> list[str]:
    """Prints the ratios; returns what misses its bar."""
    print(f"{ranks} ranks, {len(found)} launches: hvdtune's time divided by gloo's")
    missed = []
    for what in found[0]:
        ratios = [one[what] for one in found]
        is_step = what.endswith("step")
        bar, worst = (STEP_BAR, STEP_BAR) if is_step else (COLLECTIVE_BAR, 1.0)
        middle = statistics.median(ratios)
        is_met = middle <= bar and max(ratios) <= worst
        if not is_met:
            missed.append(what)
        mark = "" if is_met else f"  above {bar:g}" if middle > bar else "  a launch above gloo"
        print(f"{what:32} {middle:5.2f}   worst {max(ratios):5.2f}{mark}")
    return missed


def work(rank: int, ranks: int, store: str, sizes: tuple[int, ...], rounds: int, told: Any) -> None:
    """A rank: sends its samples."""
    os.environ["LOCAL_WORLD_SIZE"] = str(ranks)
    import torch
    from torch import distributed

    import hvdtune.distributed  # noqa: F401

    torch.set_num_threads(1)
    distributed.init_process_group(
        "hvdtune", init_method=f"file://{store}", rank=rank, world_size=ranks
    )
    groups = [distributed.group.WORLD, distributed.new_group(backend="gloo")]
    samples: Samples = {}
    for what, calls in _calls(groups, ranks, sizes):
        count = _agreed_count(calls[-1])
        rows: list[list[float]] = [[], []]
        for number in range(rounds):
            for at in (0, 1) if number % 2 else (1, 0):
                distributed.barrier()
                rows[at].append(_seconds(calls[at], count, asleep=what.startswith("asleep")))
        samples[what] = rows
    told.send(samples)
    distributed.destroy_process_group()


def _calls(
    groups: list[Any], ranks: int, sizes: tuple[int, ...]
) -> Iterator[tuple[str, list[Call]]]:
    """What is measured, with its call for each group."""
    import torch
    from torch import distributed

    for size in sizes:
        whole = torch.ones(max(size // 4, 1))
        reduce = partial(distributed.all_reduce, whole)
        yield f"all_reduce {size} B", [partial(reduce, group=group) for group in groups]
        if size <= 64 * KIB:
            yield f"asleep all_reduce {size} B", [partial(reduce, group=group) for group in groups]
            continue
        part = torch.ones(whole.numel() // ranks)
        divided = whole[: part.numel() * ranks]
        came = torch.empty_like(divided)
        for function, into, given in (
            (distributed.all_to_all_single, came, divided),
            (distributed.reduce_scatter_single, part, divided),
            (distributed.all_gather_single, came, part),
        ):
            call = partial(function, into, given)
            yield f"{function.__name__} {size} B", [partial(call, group=group) for group in groups]
    yield "DDP step", [_step(_replicated, group) for group in groups]
    yield "FSDP2 step", [_step(_sharded, group) for group in groups]


def _replicated(model: Any, group: Any) -> Any:
    from torch.nn.parallel import DistributedDataParallel

    return DistributedDataParallel(model, process_group=group)


def _sharded(model: Any, group: Any) -> Any:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard

    return fully_shard(model, mesh=DeviceMesh.from_group(group, "cpu"))


def _step(wrap: Callable[[Any, Any], Any], group: Any) -> Call:
    """A training step of a model that the group trains."""
    import torch

    layers = [torch.nn.Linear(WIDTH, WIDTH) for _ in range(64)]
    model = wrap(torch.nn.Sequential(*layers), group)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    given = torch.ones(8, WIDTH)

    def step() -> None:
        optimizer.zero_grad()
        model(given).sum().backward()
        optimizer.step()

    return step


def _agreed_count(call: Call) -> int:
    """How many calls make a turn, the same on all ranks."""
    import torch
    from torch import distributed

    call()
    begin = time.perf_counter()
    call()
    count = torch.tensor(max(1, min(200, round(TURN_S / (time.perf_counter() - begin)))))
    distributed.all_reduce(count, distributed.ReduceOp.MIN)
    return int(count)


def _seconds(call: Call, count: int, *, asleep: bool) -> float:
    """Per call."""
    call()
    total_s = 0.0
    for _ in range(count):
        if asleep:
            until = time.perf_counter() + COMPUTE_S
            while time.perf_counter() < until:
                pass
        begin = time.perf_counter()
        call()
        total_s += time.perf_counter() - begin
    return total_s / count


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))
    sys.exit(main())
