"""Reducing the gradients of whole models: hvdtune against torch's DistributedDataParallel (gloo).

    python -m studies.bench.many_tensors                     # 2 and 4 ranks, about 5 minutes
    python -m studies.bench.many_tensors --ranks 2 --workloads resnet50
    python -m studies.bench.many_tensors --check             # exit code 1 if a bar is missed

A step is `optimizer.zero_grad()`, a forward and a backward pass, `optimizer.step()`. The module has
the parameters of a model of studies/workloads; its backward pass makes the gradients of one layer
after the other, the last layer's first, by writing a constant into fresh memory, and the optimizer
under the wrappers changes nothing. So a step is what a training step is without its arithmetic, and
the same in all worlds but for who reduces:

    backward       nobody: one process's gradients stay its own
    DDP            torch.nn.parallel.DistributedDataParallel over gloo, as it comes
    DDP views      the same with gradient_as_bucket_view=True
    hvdtune        hvd.DistributedOptimizer, as it comes
    hvdtune kept   the same with zero_grad(set_to_none=False): gradients live in shared memory
    backward kept  nobody, with zero_grad(set_to_none=False)
    hvdtune group  hvd.grouped_allreduce_ of all gradients after the backward pass

Each is a world of processes of its own; one world runs at a time, in turns whose order rotates, and
the others sleep. A sample is the slowest rank's mean time per step of one turn. Shown are medians
over turns with the middle half as spread: the whole step, then the reduction, which is that turn's
step less the same round's backward world. Bars compare the medians of the reductions with DDP's.
Every world proves once per turn that its gradients hold the mean over the ranks.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn

from hvdtune.core import _native
from hvdtune.core.config.environment import Config
from hvdtune.core.config.groups import RankPlace, RendezvousConfig
from studies.workloads.tensor_lists import WORKLOADS, Tensor, tensors

PEERS: Final = (
    "backward", "DDP", "DDP views", "hvdtune", "hvdtune group", "backward kept", "hvdtune kept"
)  # fmt: skip
# The reduction may take at most this share of DDP's.
BARS: Final = {"thousand_small": 0.5, "resnet50": 0.7, "bert_base": 0.7}
TURN_S: Final = 0.4  # a turn has as many steps as fit in, at least two

_context = multiprocessing.get_context("forkserver")


class Layers(nn.Module):
    """Parameters of the given shapes, whose gradients are all `value`."""

    def __init__(self, rows: list[Tensor]) -> None:
        super().__init__()
        self.value = 1.0
        self.layers: dict[str, list[nn.Parameter]] = {}
        for row in rows:
            # Nobody reads the values, so that all share one number and need no memory.
            zeros = torch.zeros((), dtype=getattr(torch, row.dtype)).expand(row.shape)
            parameter = nn.Parameter(zeros)
            self.register_parameter(row.name.replace(".", "/"), parameter)
            self.layers.setdefault(row.module, []).append(parameter)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for parameters in self.layers.values():
            x = _Layer.apply(self.value, x, *parameters)
        return x


class _Layer(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: float, x: torch.Tensor, *parameters: torch.Tensor) -> torch.Tensor:
        ctx.value, ctx.likes = value, [(p.shape, p.dtype) for p in parameters]
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        full = [torch.full(shape, ctx.value, dtype=dtype) for shape, dtype in ctx.likes]
        return (None, gradient, *full)


class _Unchanging(torch.optim.Optimizer):
    """Takes steps that leave the parameters as they are."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {})

    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        pass


@dataclass
class Training:
    """What one process steps: the module to call, and what ends a step."""

    module: nn.Module
    optimizer: Any
    keeps: bool = False
    after_backward: Callable[[], None] = lambda: None

    def step(self) -> None:
        self.optimizer.zero_grad(set_to_none=not self.keeps)
        self.module(torch.zeros(1, requires_grad=True)).backward()
        self.after_backward()
        self.optimizer.step()


def prepare(peer: str, layers: Layers, config: Config, store: str) -> Training:
    parameters = list(layers.parameters())
    optimizer = _Unchanging(parameters)
    if peer.startswith("DDP"):
        import torch.distributed as dist

        dist.init_process_group(
            "gloo",
            init_method=f"file://{store}",
            rank=config.place.rank,
            world_size=config.place.size,
        )
        views = peer == "DDP views"
        ddp = nn.parallel.DistributedDataParallel(
            layers, gradient_as_bucket_view=views, init_sync=False
        )
        return Training(ddp, optimizer)
    keeps = peer.endswith("kept")
    if peer.startswith("backward"):
        return Training(layers, optimizer, keeps)
    import hvdtune.torch as hvd
    from hvdtune.core.rank import runtime

    runtime.init(config=config)
    if peer != "hvdtune group":
        named = layers.named_parameters()
        return Training(layers, hvd.DistributedOptimizer(optimizer, named_parameters=named), keeps)

    def reduce() -> None:
        hvd.grouped_allreduce_([p.grad for p in parameters], name="gradients")  # type: ignore[misc]

    return Training(layers, optimizer, after_backward=reduce)


def work(peer: str, workload: str, config: Config, store: str, pipe: Any) -> None:
    """A rank of a world: answers how many steps to take with the seconds that each took."""
    torch.set_num_threads(1)
    layers = Layers(tensors(workload))
    training = prepare(peer, layers, config, store)
    pipe.send(None)
    while steps := pipe.recv():
        layers.value = 1.0 + config.place.rank
        training.step()
        mean = layers.value if peer.startswith("backward") else (1.0 + config.place.size) / 2
        right = all(bool((p.grad == mean).all()) for p in layers.parameters())
        begin = time.perf_counter()
        for _ in range(steps):
            training.step()
        pipe.send((time.perf_counter() - begin) / steps if right else None)
    if peer.startswith("DDP"):
        torch.distributed.destroy_process_group()


@dataclass
class World:
    """The processes of one peer."""

    peer: str
    pipes: list[Any] = field(default_factory=list)
    processes: list[Any] = field(default_factory=list)
    server: Any = None
    steps: int = 2

    def start(self, workload: str, ranks: int, folder: str) -> None:
        key = os.urandom(32)
        if self.peer.startswith("hvdtune"):
            self.server = _native.JobServer(key, ranks)
        for rank in range(ranks):
            here, there = _context.Pipe()
            config = Config(
                place=RankPlace(rank, ranks),
                rendezvous=RendezvousConfig(
                    "127.0.0.1", self.server.port if self.server else 0, key
                ),
            )
            store = str(Path(folder, self.peer))
            process = _context.Process(
                target=work, args=(self.peer, workload, config, store, there)
            )
            process.start()
            there.close()
            self.pipes.append(here)
            self.processes.append(process)
        for pipe in self.pipes:
            pipe.recv()

    def turn(self) -> float:
        """Seconds per step, of the slowest rank."""
        for pipe in self.pipes:
            pipe.send(self.steps)
        taken = [pipe.recv() for pipe in self.pipes]
        if None in taken:
            raise SystemExit(f"{self.peer} computed a wrong mean on rank {taken.index(None)}")
        return max(taken)

    def end(self) -> None:
        for pipe in self.pipes:
            pipe.send(0)
        for process in self.processes:
            process.join(30)
        if self.server:
            self.server.close()


def measure(workload: str, ranks: int, rounds: int, peers: tuple[str, ...]) -> dict[str, Any]:
    """Seconds per step: {peer: [one per round]}."""
    worlds = [World(peer) for peer in peers]
    with tempfile.TemporaryDirectory() as folder:
        for world in worlds:
            world.start(workload, ranks, folder)
            world.turn()
            world.steps = max(2, min(200, int(TURN_S / world.turn())))
        samples: dict[str, list[float]] = {peer: [] for peer in peers}
        for round_ in range(rounds):
            first = round_ % len(worlds)
            for world in worlds[first:] + worlds[:first]:
                samples[world.peer].append(world.turn())
        for world in worlds:
            world.end()
    return samples


def reductions(samples: dict[str, list[float]]) -> dict[str, list[float]]:
    """Steps less the same round's backward world, the one that keeps its gradients for that."""
    return {
        peer: [
            step - base
            for step, base in zip(
                steps,
                samples["backward kept" if peer.endswith("kept") else "backward"],
                strict=True,
            )
        ]
        for peer, steps in samples.items()
        if not peer.startswith("backward")
    }


def render(workload: str, ranks: int, samples: dict[str, list[float]]) -> str:
    rows = tensors(workload)
    size = sum(row.count * torch.empty(0, dtype=getattr(torch, row.dtype)).itemsize for row in rows)
    lines = [
        f"\n{workload}, {ranks} ranks: {len(rows)} tensors, {size / 1e6:,.1f} MB; "
        f"median ms [middle half] of {len(samples['backward'])} turns",
        f"{'':16}{'step':>26}{'reduction':>26}{'of DDP':>9}",
    ]
    alone = reductions(samples)
    for peer, steps in samples.items():
        line = f"{peer:16}{cell(steps):>26}"
        if peer in alone:
            line += f"{cell(alone[peer]):>26}{ratio(alone, peer):>8.2f}x"
        lines.append(line)
    return "\n".join(lines)


def ratio(alone: dict[str, list[float]], peer: str) -> float:
    return statistics.median(alone[peer]) / statistics.median(alone["DDP"])


def cell(samples: list[float]) -> str:
    low, middle, high = (1e3 * q for q in statistics.quantiles(samples, n=4))
    return f"{middle:.4g} [{low:.4g}, {high:.4g}]"


def missed(workload: str, ranks: int, samples: dict[str, list[float]]) -> list[str]:
    bar = BARS.get(workload)
    share = ratio(reductions(samples), "hvdtune")
    if bar is None or share <= bar:
        return []
    return [f"{workload}, {ranks} ranks: {share:.2f}x of DDP's reduction, the bar is {bar}x"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=list(BARS))
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=Path, help="write all samples here")
    parser.add_argument("--check", action="store_true", help="fail if a bar is missed")
    arguments = parser.parse_args()
    peers = tuple(peer for peer in PEERS if peer in {"backward", "DDP", *arguments.peers})
    if "hvdtune kept" in peers and "backward kept" not in peers:
        peers += ("backward kept",)
    _context.set_forkserver_preload(["hvdtune.torch", "torch._dynamo"])
    results: dict[str, Any] = {}
    failures: list[str] = []
    for ranks in arguments.ranks:
        for workload in arguments.workloads:
            samples = measure(workload, ranks, arguments.rounds, peers)
            results[f"{workload}/{ranks}"] = samples
            print(render(workload, ranks, samples), flush=True)
            if "hvdtune" in samples:
                failures += missed(workload, ranks, samples)
    if arguments.json:
        arguments.json.write_text(json.dumps(results))
    for failure in failures:
        print(f"missed: {failure}", file=sys.stderr)
    if arguments.check and failures:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
