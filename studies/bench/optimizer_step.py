"""DistributedOptimizer: what its Python costs a gradient, and whole steps against torch's DDP.

    python -m studies.bench.optimizer_step                 # everything, about 6 minutes
    python -m studies.bench.optimizer_step --overhead      # the first alone, seconds
    python -m studies.bench.optimizer_step --ranks 2 --models digits --rounds 5
    python -m studies.bench.optimizer_step --check         # exit code 1 if a bar is missed

**Overhead.** ResNet-50's 161 gradients in one process whose optimizer is told that there are two,
so that hooks fire, requests are submitted and results unpacked, and nothing travels. Gradients
above 16 KB, which travel from where they are, are cut to that size: what Python does to them does
not depend on it. Subtracted is the same backward pass without hooks, and then one call of the core
with the same requests. Shown in wall time, which wants a quiet machine, and in the thread's
processor time. The bar: 15 us of wall time for each gradient tensor.

**Steps.** Real training of three models: the digits CNN of studies/quickstart, a transformer of 12
layers, an MLP of 1,000 small tensors. Peers are worlds of processes of their own:

    DDP            torch.nn.parallel.DistributedDataParallel over gloo, as it comes
    hvdtune        hvd.DistributedOptimizer, as it comes
    hvdtune kept   the same with zero_grad(set_to_none=False): gradients live in shared memory

One world runs at a time, in turns whose order rotates; the others sleep. A sample is the slowest
rank's mean time per step of one turn. Shown are medians with the middle half as spread, and the
ratio to DDP's turn of the same round with a 95 % interval. Ranks must agree bit for bit at the end,
and worlds to six digits. The bar: at most 0.9 of DDP's time.
"""

from __future__ import annotations

import argparse
import json
import math
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
from studies.bench.many_tensors import Layers
from studies.bench.paired import percent_with_interval
from studies.workloads.tensor_lists import Tensor, tensors

OVERHEAD_BAR_US: Final = 15.0
STEP_BAR: Final = 0.9
TURN_S: Final = 0.5  # a turn has as many steps as fit in, at least two
PEERS: Final = ("DDP", "hvdtune", "hvdtune kept")

_context = multiprocessing.get_context("forkserver")


def digits() -> tuple[nn.Module, Callable[[int, int], torch.Tensor]]:
    from studies.quickstart.train_torch import load, make_model

    images, labels, *_ = load()
    model = make_model()

    def loss(step: int, rank: int) -> torch.Tensor:
        rows = (torch.arange(32) + 32 * (4 * step + rank)) % len(labels)
        return nn.functional.cross_entropy(model(images[rows]), labels[rows])

    return model, loss


def transformer() -> tuple[nn.Module, Callable[[int, int], torch.Tensor]]:
    """12 layers of width 256, 9.6 M parameters in 148 tensors, on 2 sequences of 32 words."""
    layer = nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 12, enable_nested_tensor=False)
    model = nn.Sequential(nn.Embedding(500, 256), encoder, nn.Linear(256, 500))

    def loss(step: int, rank: int) -> torch.Tensor:
        words = (torch.arange(2 * 33).view(2, 33) * (7 * step + rank + 1)) % 500
        out = model(words[:, :-1])
        return nn.functional.cross_entropy(out.flatten(0, 1), words[:, 1:].flatten())

    return model, loss


def mlp() -> tuple[nn.Module, Callable[[int, int], torch.Tensor]]:
    """500 linear layers of 16 by 16, each with a shortcut: 1,000 tensors, 136,000 parameters."""

    class Shortcut(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + torch.tanh(super().forward(x))

    model = nn.Sequential(*(Shortcut(16, 16) for _ in range(500)))
    with torch.no_grad():  # or 500 layers multiply gradients beyond what a float holds
        for parameter in model.parameters():
            parameter.mul_(0.01)

    def loss(step: int, rank: int) -> torch.Tensor:
        inputs = torch.arange(8 * 16.0).view(8, 16).add(7 * step + rank).sin()
        return model(inputs).square().mean()

    return model, loss


MODELS: Final = {"digits": digits, "transformer": transformer, "mlp": mlp}


def prepare(peer: str, model: str, config: Config, store: str) -> tuple[Callable[[], None], Any]:
    """Return a function that takes one training step, and the model that it trains."""
    torch.manual_seed(1)
    module, loss = MODELS[model]()
    optimizer: Any = torch.optim.SGD(module.parameters(), lr=0.001, momentum=0.9)
    keeps = peer.endswith("kept")
    step = 0
    if peer == "DDP":
        import torch.distributed as dist

        dist.init_process_group(
            "gloo",
            init_method=f"file://{store}",
            rank=config.place.rank,
            world_size=config.place.size,
        )
        wrapped = _through(nn.parallel.DistributedDataParallel(Loss(module, loss)))
    else:
        import hvdtune.torch as hvd
        from hvdtune.core.rank import runtime

        runtime.init(config=config)
        optimizer = hvd.DistributedOptimizer(optimizer, module.named_parameters())
        wrapped = loss

    def take() -> None:
        nonlocal step
        optimizer.zero_grad(set_to_none=not keeps)
        wrapped(step, config.place.rank).backward()
        optimizer.step()
        step += 1

    return take, module


class Loss(nn.Module):
    """The forward pass as DDP wants it: through a module's call."""

    def __init__(self, module: nn.Module, loss: Callable[[int, int], torch.Tensor]) -> None:
        super().__init__()
        self.module, self.loss = module, loss

    def forward(self, step: int, rank: int) -> torch.Tensor:
        return self.loss(step, rank)


def _through(module: nn.Module) -> Callable[[int, int], torch.Tensor]:
    return lambda step, rank: module(step, rank)


def work(peer: str, model: str, config: Config, store: str, pipe: Any) -> None:
    """A rank of a world: answers how many steps to take with the seconds that each took."""
    torch.set_num_threads(1)
    take, module = prepare(peer, model, config, store)
    pipe.send(None)
    while steps := pipe.recv():
        take()
        begin = time.perf_counter()
        for _ in range(steps):
            take()
        pipe.send((time.perf_counter() - begin) / steps)
    flat = torch.cat([p.detach().flatten() for p in module.parameters()])
    pipe.send((flat.double().norm().item(), flat.numpy().tobytes()))
    if peer == "DDP":
        torch.distributed.destroy_process_group()


@dataclass
class World:
    """The processes of one peer."""

    peer: str
    steps: int = 2
    pipes: list[Any] = field(default_factory=list)
    processes: list[Any] = field(default_factory=list)
    server: Any = None

    def start(self, model: str, ranks: int, folder: str) -> None:
        key = os.urandom(32)
        if self.peer != "DDP":
            self.server = _native.JobServer(key, ranks)
        port = self.server.port if self.server else 0
        for rank in range(ranks):
            here, there = _context.Pipe()
            config = Config(
                place=RankPlace(rank, ranks),
                rendezvous=RendezvousConfig("127.0.0.1", port, key),
            )
            arguments = (self.peer, model, config, str(Path(folder, "store")), there)
            process = _context.Process(target=work, args=arguments)
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
        return max(pipe.recv() for pipe in self.pipes)

    def end(self) -> float:
        """The norm of the parameters that all ranks have."""
        for pipe in self.pipes:
            pipe.send(0)
        ends = [pipe.recv() for pipe in self.pipes]
        if len({parameters for _, parameters in ends}) != 1:
            raise SystemExit(f"the ranks of {self.peer} have different parameters")
        for process in self.processes:
            process.join(30)
        if self.server:
            self.server.close()
        return float(ends[0][0])


def measure(model: str, ranks: int, rounds: int, peers: tuple[str, ...]) -> dict[str, list[float]]:
    """Seconds per step: {peer: [one per round]}."""
    worlds = [World(peer) for peer in peers]
    with tempfile.TemporaryDirectory() as folder:
        for world in worlds:
            world.start(model, ranks, folder)
        steps = max(2, min(200, int(TURN_S / max(world.turn() for world in worlds))))
        for world in worlds:
            world.steps = steps
        samples: dict[str, list[float]] = {peer: [] for peer in peers}
        for round_ in range(rounds):
            first = round_ % len(worlds)
            for world in worlds[first:] + worlds[:first]:
                samples[world.peer].append(world.turn())
        norms = [world.end() for world in worlds]
    if max(norms) / min(norms) > 1 + 1e-6 or not math.isfinite(sum(norms)):
        raise SystemExit(f"{model}: the peers have trained to different parameters: {norms}")
    return samples


def render(model: str, ranks: int, samples: dict[str, list[float]]) -> str:
    rounds = len(samples["DDP"])
    lines = [f"\n{model}, {ranks} ranks: ms a step, median [middle half] of {rounds} turns"]
    for peer, seconds in samples.items():
        low, middle, high = (1e3 * cut for cut in statistics.quantiles(seconds, n=4))
        line = f"  {peer:14}{middle:9.3f} [{low:.3f}, {high:.3f}]"
        if peer != "DDP":
            ratios = [math.log(a / b) for a, b in zip(seconds, samples["DDP"], strict=True)]
            line += f"  {ratio(samples, peer):.2f}x of DDP, {percent_with_interval(ratios)}"
        lines.append(line)
    return "\n".join(lines)


def ratio(samples: dict[str, list[float]], peer: str) -> float:
    return statistics.median(a / b for a, b in zip(samples[peer], samples["DDP"], strict=True))


def overhead(rounds: int) -> dict[str, list[float]]:
    """Microseconds per gradient tensor, one for each round, by wall clock and of processor time."""
    process = _Lone()
    for _ in range(20):
        process.hooked()
        process.bare()
    samples: dict[str, list[float]] = {"wall": [], "processor": []}
    for _ in range(rounds):
        for clock, hooked, bare in zip(samples, process.hooked(), process.bare(), strict=True):
            samples[clock].append(1e6 * (hooked - bare) / process.count)
    process.end()
    return samples


def _timed(call: Callable[[], None]) -> tuple[float, float]:
    begin, begin_cpu = time.perf_counter(), time.thread_time()
    call()
    return time.perf_counter() - begin, time.thread_time() - begin_cpu


class _Lone:
    """One process with its gradients combined over itself, with hooks and without."""

    def __init__(self) -> None:
        import hvdtune.torch as hvd
        from hvdtune.core.gradients.plan import SMALL_BYTES, arrange
        from hvdtune.core.rank import runtime
        from hvdtune.core.rank.collectives import Reduction, allreduce_request
        from hvdtune.torch.gradients import describe

        torch.set_num_threads(1)
        runtime.init(config=Config())

        class Pair(type(hvd.global_process_set)):  # type: ignore[misc]
            def size(self) -> int:
                return 2

        rows = [
            Tensor(row.name, row.shape if 4 * row.count < SMALL_BYTES else (SMALL_BYTES // 4,))
            for row in tensors("resnet50")
        ]
        self.count = len(rows)
        self._layers, self._others = Layers(rows), Layers(rows)
        inner = torch.optim.SGD(self._layers.parameters(), lr=0.1)
        named = self._layers.named_parameters()
        self._optimizer = hvd.DistributedOptimizer(inner, named, process_set=Pair())
        plan = arrange(
            describe(p, name, hvd.Compression.none) for name, p in self._others.named_parameters()
        )
        counts = [(group[0].name, group[0].count) for group in plan.groups]
        counts += [(pack.name, pack.count) for pack in plan.flat_buffers]
        self._memory = [torch.zeros(count) for _, count in counts]
        self._requests = [
            allreduce_request(name, [("float32", [count])], Reduction()) for name, count in counts
        ]

    def hooked(self) -> tuple[float, float]:
        self._optimizer.zero_grad()
        out = self._layers(torch.zeros(1, requires_grad=True))

        def pass_back() -> None:
            out.backward()
            self._optimizer.synchronize()

        return _timed(pass_back)

    def bare(self) -> tuple[float, float]:
        from hvdtune.core.rank import runtime

        for parameter in self._others.parameters():
            parameter.grad = None
        out = self._others(torch.zeros(1, requires_grad=True))
        native = runtime.native()
        addresses = [tensor.data_ptr() for tensor in self._memory]

        def pass_back() -> None:
            out.backward()
            handles: list[int] = []
            native.submit(self._requests, addresses, addresses, handles)
            while not native.finish(handles, 60.0):
                pass

        return _timed(pass_back)

    def end(self) -> None:
        from hvdtune.core.rank import runtime

        runtime.shutdown()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--overhead", action="store_true", help="measure that alone")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=Path, help="write all samples here")
    parser.add_argument("--check", action="store_true", help="exit code 1 if a bar is missed")
    given = parser.parse_args()
    peers = tuple(peer for peer in PEERS if peer in {"DDP", *given.peers})
    micros = overhead(300)
    for clock, samples in micros.items():
        low, middle, high = statistics.quantiles(samples, n=4)
        print(f"Python's part, {clock} time: {middle:.2f} us [{low:.2f}, {high:.2f}] a gradient")
    results: dict[str, Any] = {"overhead_us": micros}
    wall = statistics.median(micros["wall"])
    missed = [f"{wall:.2f} us a gradient"] if wall > OVERHEAD_BAR_US else []
    _context.set_forkserver_preload(["hvdtune.torch", "torch._dynamo"])
    for ranks in [] if given.overhead else given.ranks:
        for model in given.models:
            turns = measure(model, ranks, given.rounds, peers)
            results[f"{model}/{ranks}"] = turns
            print(render(model, ranks, turns), flush=True)
            if "hvdtune" in turns and ratio(turns, "hvdtune") > STEP_BAR:
                share = ratio(turns, "hvdtune")
                missed.append(f"{model}, {ranks} ranks: {share:.2f}x of DDP's step")
    if given.json:
        given.json.write_text(json.dumps(results))
    for miss in missed:
        print(f"missed: {miss}", file=sys.stderr)
    return int(given.check and bool(missed))


if __name__ == "__main__":
    sys.exit(main())
