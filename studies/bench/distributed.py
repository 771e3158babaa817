"""torch.distributed over hvdtune and over gloo, interleaved in the same processes.

    python -m studies.bench.distributed                         # all parts, 2 ranks, 4 minutes
    python -m studies.bench.distributed --parts asleep steps
    python -m studies.bench.distributed --ranks 4
    python -m studies.bench.distributed --deepspeed             # all_reduce over DeepSpeed's too
    python -m studies.bench.distributed --quick                 # that it works; figures say nothing
    python -m studies.bench.distributed --check                 # exit code 1 if a bar is missed

Every rank is in two groups of all ranks, one of each backend, and calls both in turns whose order
rotates. A sample is the slowest rank's mean over a turn, a launch's figure the median of its
samples; shown are the medians over the launches and the worst launch, hvdtune's time divided by
gloo's. Run it on a quiet machine. The parts:

    collectives    calls one after another
    asleep         each call after 5 ms of computing, so that the threads of both sleep by then
    steps          training steps of DDP and of FSDP2, on the models of optimizer_step beside this
                   file, and such without communication (torch's backend "fake"), which none beats

The bars: half of gloo's time for collectives, and no launch above gloo's; 0.9 for steps, and for an
all_reduce over DeepSpeed's through shared memory. DeepSpeed compiles that when it is first called:
--deepspeed wants an environment with it, hvdtune, a compiler and ninja.
"""

from __future__ import annotations

import argparse
import importlib
import math
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from torch import Tensor
    from torch.futures import Future

KIB, MIB = 1 << 10, 1 << 20
BACKENDS: Final = ("hvdtune", "gloo")
SMALL_SIZES: Final = (4, 4 * KIB, 64 * KIB)
LARGE_SIZES: Final = (MIB, 16 * MIB, 64 * MIB)
LAUNCHES: Final = {"collectives": 5, "asleep": 10, "steps": 3}  # of each part
TURN_S: Final = 0.05
COMPUTE_S: Final = 0.005
COLLECTIVE_BAR: Final = 0.5
STEP_BAR: Final = 0.9
DEEPSPEED: Final = "over DeepSpeed"
DEEPSPEED_BAR: Final = 0.9
ALONE: Final = "without communication, over gloo"

Call = Callable[[], Any]
Samples = dict[str, list[list[float]]]  # by what was called: seconds per round, for each peer

_context = multiprocessing.get_context("forkserver")


@dataclass(frozen=True)
class Plan:
    """What a launch measures."""

    part: str
    ranks: int
    rounds: int
    is_quick: bool
    has_deepspeed: bool


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--parts", nargs="+", choices=LAUNCHES, default=list(LAUNCHES))
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--launches", type=int, help="of each part, in place of its own number")
    parser.add_argument("--rounds", type=int, default=10, help="turns of each in a launch")
    parser.add_argument("--deepspeed", action="store_true", help="a third peer")
    parser.add_argument("--quick", action="store_true", help="one launch of a few calls")
    parser.add_argument("--check", action="store_true", help="exit code 1 if a bar is missed")
    given = parser.parse_args()
    _context.set_forkserver_preload(["hvdtune.distributed", "torch._dynamo"])
    missed = []
    for part in given.parts:
        launches = 1 if given.quick else given.launches or LAUNCHES[part]
        rounds = 2 if given.quick else given.rounds
        plan = Plan(part, given.ranks, rounds, given.quick, given.deepspeed)
        found = []
        for number in range(launches):
            print(f"{part}: launch {number + 1} of {launches}", file=sys.stderr, flush=True)
            found.append(launch(plan))
        missed += show(plan, found)
    return 1 if given.check and missed else 0


def launch(plan: Plan) -> dict[str, float]:
    """hvdtune's time divided by its peers' in a job of its own, by what was called."""
    with tempfile.TemporaryDirectory() as folder:
        ends = [_context.Pipe(duplex=False) for _ in range(plan.ranks)]
        store = str(Path(folder, "store"))
        processes = [
            _context.Process(target=work, args=(rank, plan, store, ends[rank][1]))
            for rank in range(plan.ranks)
        ]
        for process, (_, there) in zip(processes, ends, strict=True):
            process.start()
            there.close()
        told: list[Samples] = [here.recv() for here, _ in ends]
        for process in processes:
            process.join()
    ratios: dict[str, float] = {}
    for what in told[0]:
        ours, gloo, *third = _medians([samples[what] for samples in told])
        ratios[what] = ours / gloo
        for theirs in third:
            if plan.part == "steps":
                ratios[f"{what} {ALONE}"] = theirs / gloo
            else:
                ratios[f"{what} {DEEPSPEED}"] = ours / theirs
    return ratios


def _medians(by_rank: list[list[list[float]]]) -> list[float]:
    """Of each peer, over the rounds, of the slowest rank's times."""
    return [
        statistics.median(map(max, zip(*(rank[at] for rank in by_rank), strict=True)))
        for at in range(len(by_rank[0]))
    ]


def show(plan: Plan, found: list[dict[str, float]]) -> list[str]:
    """Prints the ratios; returns what misses its bar."""
    title = f"{plan.part}, {plan.ranks} ranks, {len(found)} launches"
    print(f"{title}: hvdtune's time divided by gloo's")
    missed = []
    for what in found[0]:
        ratios = [one[what] for one in found]
        bar, worst = (STEP_BAR, STEP_BAR) if plan.part == "steps" else (COLLECTIVE_BAR, 1.0)
        if what.endswith(DEEPSPEED):
            bar = worst = DEEPSPEED_BAR
        elif what.endswith(ALONE):
            bar = worst = math.inf
        middle = statistics.median(ratios)
        is_met = middle <= bar and max(ratios) <= worst
        if not is_met:
            missed.append(what)
        mark = (
            "" if is_met else f"  above {bar:g}" if middle > bar else f"  a launch above {worst:g}"
        )
        print(f"  {what:50} {middle:5.2f}   worst {max(ratios):5.2f}{mark}", flush=True)
    return missed


def work(rank: int, plan: Plan, store: str, told: Any) -> None:
    """A rank: sends its samples."""
    os.environ["LOCAL_WORLD_SIZE"] = str(plan.ranks)
    import torch
    from torch import distributed

    torch.set_num_threads(1)
    distributed.init_process_group(
        "hvdtune", init_method=f"file://{store}", rank=rank, world_size=plan.ranks
    )
    groups = [distributed.group.WORLD, distributed.new_group(backend="gloo")]
    if plan.part == "steps":
        groups.append(_without_communication())
    elif plan.has_deepspeed:
        _load_deepspeed(rank, plan.ranks)
    asleep = plan.part == "asleep"
    samples: Samples = {}
    for what, calls in _steps(groups, plan) if plan.part == "steps" else _calls(groups, plan):
        count = _agreed_count(calls[-1], COMPUTE_S if asleep else 0.0)
        rows: list[list[float]] = [[] for _ in calls]
        for number in range(plan.rounds):
            for at in sorted(range(len(calls)), key=lambda at: (at + number) % len(calls)):
                distributed.barrier()
                rows[at].append(_seconds(calls[at], count, asleep=asleep))
        samples[what] = rows
    told.send(samples)
    distributed.destroy_process_group()


def _without_communication() -> Any:
    """A group in which every collective is over at once."""
    importlib.import_module("torch.testing._internal.distributed.fake_pg")  # makes it known
    from torch import distributed

    return distributed.new_group(backend="fake")


def _load_deepspeed(rank: int, ranks: int) -> None:
    """Gives torch DeepSpeed's operation, which rank 0 compiles unless that was done before."""
    from torch import distributed

    # By these DeepSpeed's ranks find the memory that they share.
    port = str(os.getppid())
    os.environ.update(
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=port,
        LOCAL_SIZE=str(ranks),
        RANK=str(rank),
        WORLD_SIZE=str(ranks),
    )
    builder = importlib.import_module("deepspeed.ops.op_builder.cpu.comm").ShareMemCommBuilder()
    if rank > 0:
        distributed.barrier()
    loaded = builder.load(verbose=False)
    if rank == 0:
        distributed.barrier()
    loaded.initialize(ranks, rank)
    distributed.barrier()
    if rank == 0:  # DeepSpeed leaves it there for ever
        for path in Path("/dev/shm").glob(f"deepspeed_allreduce_buffer_*_{port}_*"):
            path.unlink()


def _calls(groups: list[Any], plan: Plan) -> Iterator[tuple[str, list[Call]]]:
    """Collectives, with their call for each group."""
    import torch
    from torch import distributed

    sizes = SMALL_SIZES if plan.is_quick or plan.part == "asleep" else SMALL_SIZES + LARGE_SIZES
    for size in sizes:
        whole = torch.ones(max(size // 4, 1))
        reduce = partial(distributed.all_reduce, whole)
        calls: list[Call] = [partial(reduce, group=group) for group in groups]
        if plan.has_deepspeed:
            calls.append(partial(torch.ops.deepspeed.inference_all_reduce_, whole))
        yield f"all_reduce {size} B", calls
        if size not in LARGE_SIZES:
            continue
        part = torch.ones(whole.numel() // plan.ranks)
        divided = whole[: part.numel() * plan.ranks]
        came = torch.empty_like(divided)
        for function, into, given in (
            (distributed.all_to_all_single, came, divided),
            (distributed.reduce_scatter_single, part, divided),
            (distributed.all_gather_single, came, part),
        ):
            call = partial(function, into, given)
            yield f"{function.__name__} {size} B", [partial(call, group=group) for group in groups]


def _steps(groups: list[Any], plan: Plan) -> Iterator[tuple[str, list[Call]]]:
    """Training steps, each with a model of its own for each group."""
    from studies.bench.optimizer_step import MODELS

    for wrap in (_replicated, _sharded):
        for name in ["digits"] if plan.is_quick else MODELS:
            yield f"{wrap.__doc__} {name}", [_step(wrap, name, group) for group in groups]


def _replicated(model: Any, group: Any) -> Any:
    """DDP"""
    from torch import distributed
    from torch.nn.parallel import DistributedDataParallel

    replicated = DistributedDataParallel(model, process_group=group)
    if distributed.get_backend(group) == "fake":  # whose futures have no result
        replicated.register_comm_hook(None, lambda _, bucket: _ended(bucket.buffer()))
    return replicated


def _ended(result: Tensor) -> Future[Tensor]:
    from torch.futures import Future

    future: Future[Tensor] = Future()
    future.set_result(result)
    return future


def _sharded(model: Any, group: Any) -> Any:
    """FSDP2"""
    from torch import nn
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard

    mesh = DeviceMesh.from_group(group, "cpu")
    for layer in model.modules():
        if isinstance(layer, nn.TransformerEncoderLayer):
            fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def _step(wrap: Callable[[Any, Any], Any], name: str, group: Any) -> Call:
    """A training step of a model of studies/bench/optimizer_step that the group trains."""
    import torch

    from studies.bench.optimizer_step import MODELS, Loss

    torch.manual_seed(1)
    module, loss = MODELS[name]()
    model = wrap(Loss(module, loss), group)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)

    def step() -> None:
        optimizer.zero_grad()
        model(0, group.rank()).backward()
        optimizer.step()

    return step


def _agreed_count(call: Call, before_s: float) -> int:
    """How many calls make a turn, with that much before each; the same on all ranks."""
    import torch
    from torch import distributed

    call()
    begin = time.perf_counter()
    call()
    each_s = before_s + time.perf_counter() - begin
    count = torch.tensor(max(1, min(200, round(TURN_S / each_s))))
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
