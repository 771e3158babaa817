"""The training that bottlenecks are planted into: real ranks, real collectives, made-up computing.

A step: a batch from a DataLoader, a forward pass, a backward pass that sends each gradient as soon
as it is there, a wait for all of them, an optimizer. Computing is mostly waiting, as if a device
did it, so that 4 ranks on 2 cores do not disturb each other; `Work.spins` makes it use a processor.
"""

from __future__ import annotations

import gc
import os
import time
from dataclasses import dataclass, field
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
        tensors: gradients of a step.
        tensor_bytes: of each.
        forward_ms, backward_ms, optimizer_ms, input_ms: of a step.
        name_bytes: names of gradients are at least as long.
        spins: computing uses a processor instead of waiting.
        at_once: gradients are sent together when the backward pass is over.
        slow_rank: who has the extras; -1: every rank.
        extra_compute_ms: of the forward pass, on a processor.
        extra_input_ms: of the input.
        reversed_order: gradients are announced in the opposite order.
        new_names: no gradient has the name it had in the step before.
        huge_bytes: of a gradient more, announced last.
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
    new_names: bool = False
    huge_bytes: int = 0
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


def spin(ms: float) -> None:
    """Computes; how much, not how long, is fixed where others want the processor too."""
    end = time.thread_time() + ms / 1000
    while time.thread_time() < end:
        pass


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
    compute = spin if work.spins else (lambda ms: time.sleep(ms / 1000))
    mine = work.slow_rank in (-1, hvd.rank())
    gradients = [torch.zeros(work.tensor_bytes // 4) for _ in range(work.tensors)]
    order = list(range(work.tensors))
    if work.reversed_order and mine:
        order.reverse()
    huge = torch.zeros(work.huge_bytes // 4)
    heap = [[index] for index in range(work.heap_objects)] if mine else []
    model = {"weights": torch.zeros(work.checkpoint_bytes // 4)}
    gc.collect()
    gc.disable()
    extra_input_ms = work.extra_input_ms if mine else 0.0
    loader = DataLoader(Samples(steps, work.input_ms + extra_input_ms), batch_size=1)
    hvd.barrier()
    runtime.mark_step()
    took = []
    before = psutil.cpu_times()
    last = time.perf_counter()
    for step, _ in enumerate(loader):
        compute(work.forward_ms)
        if mine and work.extra_compute_ms:
            spin(work.extra_compute_ms)
        prefix = (f"step{step}." if work.new_names else "").ljust(work.name_bytes, ".")
        if work.at_once:
            compute(work.backward_ms)
        handles: list[Any] = []
        for index in order:
            if not work.at_once:
                compute(work.backward_ms / work.tensors)
            handles.append(hvd.allreduce_async_(gradients[index], name=f"{prefix}layer{index}"))
        if work.huge_bytes:
            handles.append(hvd.allreduce_async_(huge, name="embedding"))
        for handle in handles:
            hvd.synchronize(handle)
        compute(work.optimizer_ms)
        if mine and work.checkpoint_every and step % work.checkpoint_every == 0:
            torch.save(model, os.path.join(folder, f"checkpoint-{hvd.rank()}"))
        if mine and work.collect_every and step % work.collect_every == 0:
            gc.collect()
        runtime.mark_step()
        now = time.perf_counter()
        took.append(1000 * (now - last))
        last = now
    gc.enable()
    del heap
    return Took(took, stolen_share(before, psutil.cpu_times()))


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
