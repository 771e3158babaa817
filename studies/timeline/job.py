"""The training that bottlenecks are planted into: real ranks, real collectives, made-up computing.

A step: a batch from a DataLoader, a forward pass, a backward pass through layers that take their
time, in which DistributedOptimizer sends what torch's autograd has computed, and its step.
Computing is mostly waiting, as if a device did it, so that 4 ranks on 2 cores do not disturb each
other; `Work.spins` makes it use a processor.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import psutil
import torch
from torch.utils.data import DataLoader, Dataset

import hvdtune.torch as hvd
from hvdtune.core.rank import runtime

MiB = 1 << 20


@dataclass(frozen=True)
class Work:
    """One rank's steps; the fields from `extra_compute_ms` on are what is planted.

    Attributes:
        tensors: parameters, each of a layer of its own.
        tensor_bytes: of each; those below 16 KiB would travel packed together.
        forward_ms, backward_ms, optimizer_ms, input_ms: of a step.
        name_bytes: names of parameters are at least as long.
        spins: computing uses a processor instead of waiting.
        at_once: gradients are there together, at the end of the backward pass.
        slow_rank: who has the extras; -1: every rank.
        extra_compute_ms: of the forward pass, on a processor.
        extra_input_ms: of the input.
        reversed_order: layers are passed in the opposite order.
        huge_bytes: of one more parameter, whose gradient comes last, as an embedding's does.
        keeps_huge: its gradient stays on its rank, which computes all the same.
        checkpoint_every, checkpoint_bytes: torch.save after so many steps; 0: never.
        collect_every, heap_objects: gc.collect() after so many steps, with so much to look at.
    """

    tensors: int = 24
    tensor_bytes: int = 256 << 10
    forward_ms: float = 6.0
    backward_ms: float = 12.0
    optimizer_ms: float = 0.5
    input_ms: float = 0.2
    name_bytes: int = 0
    spins: bool = False
    at_once: bool = False
    slow_rank: int = -1
    extra_compute_ms: float = 0.0
    extra_input_ms: float = 0.0
    reversed_order: bool = False
    huge_bytes: int = 0
    keeps_huge: bool = False
    checkpoint_every: int = 0
    checkpoint_bytes: int = 0
    collect_every: int = 0
    heap_objects: int = 0


class Samples(Dataset[torch.Tensor]):
    """Takes so long to give one sample."""

    def __init__(self, steps: int, takes_ms: float) -> None:
        self.steps, self.takes_ms = steps, takes_ms

    def __len__(self) -> int:
        return self.steps

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(self.takes_ms / 1000)
        return torch.zeros(1)


def sleep(ms: float) -> None:
    """Waits, as for a device."""
    time.sleep(ms / 1000)


def spin(ms: float) -> None:
    """Computes; how much, not how long, is fixed where others want the processor too."""
    end = time.thread_time() + ms / 1000
    while time.thread_time() < end:
        pass


class Layer(torch.autograd.Function):
    """Takes its time in the backward pass."""

    @staticmethod
    def forward(
        ctx: Any, inputs: torch.Tensor, weight: torch.Tensor, compute: Callable[[], None]
    ) -> torch.Tensor:
        ctx.weight, ctx.compute = weight, compute
        return inputs.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        ctx.compute()
        return gradients[0], torch.zeros_like(ctx.weight), None


class Model(torch.nn.Module):
    """Layers of one parameter each, and before them a huge one where there is one."""

    def __init__(self, work: Work, *, is_reversed: bool) -> None:
        super().__init__()
        compute = spin if work.spins else sleep
        weights = []
        for index in range(work.tensors):
            name = f"layer{index}".ljust(work.name_bytes, "_")
            weight = torch.nn.Parameter(torch.zeros(work.tensor_bytes // 4))
            self.register_parameter(name, weight)
            weights.append(weight)
        if is_reversed:
            weights.reverse()
        each_ms = 0.0 if work.at_once else work.backward_ms / work.tensors
        self.layers = [(weight, partial(compute, each_ms)) for weight in weights]
        if work.at_once:  # the first in the backward pass
            self.layers[-1] = weights[-1], partial(compute, work.backward_ms)
        if work.huge_bytes:
            self.embedding = torch.nn.Parameter(torch.zeros(work.huge_bytes // 4))
            self.layers.insert(0, (self.embedding, partial(compute, 0.0)))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        for weight, compute in self.layers:
            inputs = Layer.apply(inputs, weight, compute)
        return inputs.sum()


@dataclass(frozen=True)
class Took:
    """What a rank saw.

    Attributes:
        step_ms: of each step, by the rank's own clock.
        stolen: share of the machine's processor time that went to other machines meanwhile.
    """

    step_ms: list[float]
    stolen: float


def train(work: Work, steps: int, folder: str) -> Took:
    """One rank's training."""
    compute = spin if work.spins else sleep
    mine = work.slow_rank in (-1, hvd.rank())
    model = Model(work, is_reversed=work.reversed_order and mine)
    optimizers = _optimizers(model, work)
    heap = [[index] for index in range(work.heap_objects)] if mine else []
    state = {"weights": torch.zeros(work.checkpoint_bytes // 4)}
    gc.collect()
    gc.disable()
    extra_input_ms = work.extra_input_ms if mine else 0.0
    loader = DataLoader(Samples(steps, work.input_ms + extra_input_ms), batch_size=1)
    hvd.barrier()
    runtime.mark_step()
    took = []
    before = psutil.cpu_times()
    last = time.perf_counter()
    for step, batch in enumerate(loader):
        compute(work.forward_ms)
        if mine and work.extra_compute_ms:
            spin(work.extra_compute_ms)
        for optimizer in optimizers:
            optimizer.zero_grad()
        model(batch.requires_grad_()).backward()
        if mine and work.checkpoint_every and step % work.checkpoint_every == 0:
            torch.save(state, os.path.join(folder, f"checkpoint-{hvd.rank()}"))
        if mine and work.collect_every and step % work.collect_every == 0:
            gc.collect()
        compute(work.optimizer_ms)
        for optimizer in optimizers:
            optimizer.step()
        now = time.perf_counter()
        took.append(1000 * (now - last))
        last = now
    gc.enable()
    del heap
    return Took(took, stolen_share(before, psutil.cpu_times()))


def _optimizers(model: Model, work: Work) -> list[torch.optim.Optimizer]:
    """First that of what ranks keep to themselves, where there is some."""
    shared = dict(model.named_parameters())
    kept = [shared.pop("embedding")] if work.keeps_huge else []
    optimizers = [torch.optim.SGD(kept, lr=0.01)] if kept else []
    sgd = torch.optim.SGD(shared.values(), lr=0.01)
    return [*optimizers, hvd.DistributedOptimizer(sgd, named_parameters=shared.items())]


def stolen_share(before: Any, after: Any) -> float:
    """The share of processor time between two `psutil.cpu_times()` that was stolen, from 0."""
    whole = sum(after) - sum(before)
    return (getattr(after, "steal", 0.0) - getattr(before, "steal", 0.0)) / max(whole, 1e-9)


@dataclass(frozen=True)
class Place:
    """Where ranks run.

    Attributes:
        ranks: how many.
        hosts: names of hosts, one per rank; empty: one host.
        rate: of every host's link, as tc has it; "": hosts are names only.
        burst: what goes faster than that, after a pause.
        slow_host, slow_rate: another rate for one of them.
        stream_rate: of each connection between hosts; "": whatever the link has.
        burners: processes that compute beside the ranks.
        private: ranks of a host may not read each other's memory.
    """

    ranks: int = 2
    hosts: tuple[str, ...] = ()
    rate: str = ""
    burst: str = "256kb"
    slow_host: int = -1
    slow_rate: str = ""
    stream_rate: str = ""
    burners: int = 0
    private: bool = False


@dataclass(frozen=True)
class Run:
    """One launch."""

    place: Place = Place()
    work: Work = Work()
    setting: dict[str, Any] = field(default_factory=dict)
    link_gbps: float | None = None
