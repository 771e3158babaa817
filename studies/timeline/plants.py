"""Bottlenecks that can be planted, each at three intensities.

A plant is two launches: with it, and the same without it. What `hvdtune timeline why` has to say of
the first is its kind, its rank where it has one, and a cost of what the second is faster.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from studies.timeline.job import MiB, Place, Run, Work

INTENSITIES = (0, 1, 2)


@dataclass(frozen=True)
class Case:
    """What to launch, and what to expect.

    Attributes:
        kind: of the first finding.
        rank: it has to name; None: it must name none, unless `any_rank`.
        with_plant, without: the launches.
        in_every_step: or only in some.
    """

    kind: str
    rank: int | None
    intensity: int
    with_plant: Run
    without: Run
    in_every_step: bool = True


Make = Callable[[int, int, int], Case]


def _case(kind: str, rank: int | None, intensity: int, base: Run, **changes: Any) -> Case:
    """`changes` of the work, or `place`, `setting` or `in_every_step`."""
    place, setting = changes.pop("place", base.place), changes.pop("setting", base.setting)
    in_every_step = changes.pop("in_every_step", True)
    planted = replace(base, work=replace(base.work, **changes), place=place, setting=setting)
    return Case(kind, rank, intensity, planted, base, in_every_step)


def _base(ranks: int, **work: Any) -> Run:
    return Run(Place(ranks), Work(**work))


def _quiet(ranks: int, **work: Any) -> Run:
    """Little communication, so that four ranks do not lack two processors."""
    return _base(ranks, tensors=8, tensor_bytes=64 << 10, **work)


def slow_compute(ranks: int, rank: int, level: int) -> Case:
    extra_ms = (6.0, 12.0, 24.0)[level]
    base = _quiet(ranks)
    return _case("slow-compute", rank, level, base, slow_rank=rank, extra_compute_ms=extra_ms)


def slow_input(ranks: int, rank: int, level: int) -> Case:
    extra_ms = (6.0, 12.0, 24.0)[level]
    return _case("slow-input", rank, level, _quiet(ranks), slow_rank=rank, extra_input_ms=extra_ms)


def checkpoints(ranks: int, rank: int, level: int) -> Case:
    every = (12, 6, 3)[level]
    return _case(
        "checkpoint-pauses",
        rank,
        level,
        _quiet(ranks),
        slow_rank=rank,
        checkpoint_every=every,
        checkpoint_bytes=64 * MiB,
        in_every_step=False,
    )


def garbage(ranks: int, rank: int, level: int) -> Case:
    every = (12, 6, 3)[level]
    base = _quiet(ranks, slow_rank=rank, heap_objects=500_000)
    return _case("gc-pauses", rank, level, base, collect_every=every, in_every_step=False)


def tiny_buckets(ranks: int, rank: int, level: int) -> Case:
    """Over a network, where each costs a round trip more than it costs processor time."""
    del rank
    count = (200, 300, 400)[level] // (ranks - 1)
    place = Place(ranks, _hosts(ranks), rate="1gbit")
    base = Run(place, Work(tensors=count, tensor_bytes=16 << 10, at_once=True))
    return _case("tiny-buckets", None, level, base, setting={"fusion_threshold_bytes": 0})


def long_cycle(ranks: int, rank: int, level: int) -> Case:
    del rank
    base = _hidden_by_computing(ranks, tensors=6, step_mib=(1.0, 1.3, 1.6)[level])
    return _case("long-cycle", None, level, base, setting={"cycle_time_ms": 50.0})


def _hidden_by_computing(ranks: int, tensors: int, step_mib: float) -> Run:
    """Communication over a network, which takes little processor time from what hides it.

    It lasts about 9 ms per MiB whatever the number of ranks, of 24 that can hide it.
    """
    crossing = 2 * (ranks - 1) / ranks  # bytes on a host's link, per byte reduced
    size = int(step_mib * MiB / crossing / tensors) & ~3
    place = Place(ranks, _hosts(ranks), rate="1gbit", burst="16kb")
    return Run(place, Work(tensors=tensors, tensor_bytes=size, backward_ms=24.0))


def cold_cache(ranks: int, rank: int, level: int) -> Case:
    """Names cross a network that is slow enough for them to take longer than the processor does."""
    del rank
    rate = ("100mbit", "60mbit", "40mbit")[level]
    work = Work(tensors=40, tensor_bytes=16 << 10, name_bytes=4000, at_once=True)
    base = Run(Place(ranks, _hosts(ranks), rate=rate, burst="16kb"), work)
    return _case("cold-cache", None, level, base, setting={"cache_enabled": False})


def different_order(ranks: int, rank: int, level: int) -> Case:
    base = _hidden_by_computing(ranks, tensors=12, step_mib=(1.6, 2.0, 2.4)[level])
    named = rank if ranks > 2 else None
    return _case("different-order", named, level, base, reversed_order=True, slow_rank=rank)


def huge_late_tensor(ranks: int, rank: int, level: int) -> Case:
    """Without the plant its gradient is computed and applied all the same, and not sent."""
    del rank
    ranks = min(ranks, os.cpu_count() or 1)  # so much memory to write is processor time
    size = (16 * MiB, 32 * MiB, 64 * MiB)[level]
    base = _base(ranks, tensor_bytes=MiB // 16, huge_bytes=size, keeps_huge=True)
    return _case("huge-late-tensor", None, level, base, keeps_huge=False)


def oversubscribed(ranks: int, rank: int, level: int) -> Case:
    del rank
    ranks = min(ranks, os.cpu_count() or 1)  # more would be it without any plant
    base = _base(ranks, spins=True, forward_ms=4.0, backward_ms=8.0)
    place = Place(ranks, burners=(2, 4, 8)[level])
    return _case("oversubscribed", None, level, base, place=place)


def copy_bound(ranks: int, rank: int, level: int) -> Case:
    """Where ranks may not read each other's memory, buckets are copied into common memory."""
    del rank
    ranks = min(ranks, os.cpu_count() or 1)  # copies are processor time
    size = (8 * MiB, 16 * MiB, 32 * MiB)[level]
    base = _base(ranks, tensors=2, tensor_bytes=size, at_once=True)
    return _case("copy-bound", None, level, base, place=Place(ranks, private=True))


def _hosts(ranks: int, per_host: int = 1) -> tuple[str, ...]:
    return tuple(f"host-{rank // per_host}" for rank in range(ranks))


def slow_link(ranks: int, rank: int, level: int) -> Case:
    ranks = max(ranks, 3)
    place = Place(ranks, _hosts(ranks), rate="2gbit")
    base = Run(place, Work(tensor_bytes=128 << 10))
    slow = replace(place, slow_host=rank, slow_rate=("600mbit", "400mbit", "300mbit")[level])
    return _case("slow-link", rank, level, base, place=slow)


def channels(ranks: int, rank: int, level: int) -> Case:
    """A network that limits each connection, as some clouds do: one stream is too few."""
    del ranks, rank
    size = (128 << 10, 192 << 10, 256 << 10)[level]
    place = Place(2, _hosts(2), stream_rate="400mbit")
    work = Work(tensor_bytes=size, at_once=True)  # one bucket, large enough for 8 streams
    base = Run(place, work, setting={"channels": 8}, link_gbps=3.2)
    return _case("channels", None, level, base, setting={"channels": 1})


def hierarchy_off(ranks: int, rank: int, level: int) -> Case:
    del ranks, rank
    rate = ("500mbit", "250mbit", "150mbit")[level]
    place = Place(4, _hosts(4, per_host=2), rate=rate)
    base = Run(place, Work(tensor_bytes=64 << 10), setting={"hierarchical_allreduce": True})
    return _case("hierarchy-off", None, level, base, setting={"hierarchical_allreduce": False})


PLANTS: tuple[Make, ...] = (
    slow_compute,
    slow_input,
    slow_link,
    tiny_buckets,
    long_cycle,
    cold_cache,
    different_order,
    oversubscribed,
    checkpoints,
    garbage,
    huge_late_tensor,
    copy_bound,
    channels,
    hierarchy_off,
)


def balanced(ranks: int, variant: int) -> Run:
    """Launches in which nothing is planted.

    Of more ranks than processors those with little to communicate: others lack processors in truth.
    """
    works = (
        Work(),
        Work(tensor_bytes=MiB // 2),
        Work(tensors=100, tensor_bytes=16 << 10, at_once=True),
        Work(forward_ms=3.0, backward_ms=20.0),
        Work(tensors=8, tensor_bytes=64 << 10, forward_ms=10.0, backward_ms=4.0),
    )
    if ranks > (os.cpu_count() or 1):
        works = (
            Work(tensors=8, tensor_bytes=64 << 10),
            Work(tensors=8, tensor_bytes=64 << 10, forward_ms=10.0, backward_ms=4.0),
            Work(tensors=4, tensor_bytes=128 << 10, forward_ms=3.0, backward_ms=20.0),
        )
    return Run(Place(ranks), works[variant % len(works)])
