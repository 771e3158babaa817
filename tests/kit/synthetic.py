"""Traces of jobs that never ran: every time in them is known."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hvdtune.timeline import Trace
from hvdtune.timeline.model.event_table import make_events
from hvdtune.timeline.model.schema import COLUMNS, KIND_NAMES

MS = 1_000_000
SETTING = {
    "cycle_time_ms": 1.0,
    "fusion_threshold_bytes": 128 << 20,
    "cache_enabled": True,
    "channels": 1,
    "hierarchical_allreduce": False,
}


@dataclass
class Recorder:
    """Collects events and makes a trace of them."""

    rows: list[tuple[Any, ...]] = field(default_factory=list)
    names: dict[str, int] = field(default_factory=lambda: {"": 0})

    def add(
        self, rank: int, kind: str, begin_ms: float, end_ms: float, name: str = "", **values: int
    ) -> None:
        number = self.names.setdefault(name, len(self.names))
        begin, end = round(begin_ms * MS), round(end_ms * MS)
        rest = [values.get(key, 0) for key in ("seq", "bucket", "arg")]
        self.rows.append((rank, KIND_NAMES.index(kind), number, begin, end, *rest))

    def trace(self, ranks: int, hosts: Sequence[str] = (), **setting: Any) -> Trace:
        columns = dict(
            zip(COLUMNS, np.array(self.rows, np.int64).reshape(-1, len(COLUMNS)).T, strict=True)
        )
        meta = {
            "ranks": {
                rank: {
                    "size": ranks,
                    "host": hosts[rank] if hosts else "alpha",
                    "start_setting": SETTING | setting,
                }
                for rank in range(ranks)
            },
            "dropped": {},
            "clock": {},
        }
        return Trace(make_events(columns, list(self.names)), meta)


@dataclass(frozen=True)
class Training:
    """Steps in which all ranks compute, announce `tensors` and wait for one bucket.

    Attributes:
        compute_ms: of each rank.
        spans: {(rank, step or None for all): [(name, ms)]}: what a rank does first.
        bucket_ms: what communication takes after the last announcement and 0.1 ms of negotiation.
        ran: the trace tells processor times: all of compute, none of spans.
        asleep_ms: part of each rank's compute in which it was off its processor.
        no_processor_ms: part in which it could have run.
        names: of the tensors, by their number.
        apart_ms: between two announcements of a rank, before the end of its compute.
        response_ms: how much later each rank gets its responses; communication waits for the last.
    """

    compute_ms: Sequence[float]
    steps: int = 60
    tensors: int = 4
    tensor_bytes: int = 1 << 20
    bucket_ms: float = 1.0
    spans: dict[tuple[int, int | None], list[tuple[str, float]]] = field(default_factory=dict)
    ran: bool = True
    asleep_ms: Sequence[float] = ()
    no_processor_ms: Sequence[float] = ()
    cached: bool = True
    response_ms: Sequence[float] = ()
    noise_ms: float = 0.0
    names: str = "layer{}"
    apart_ms: float = 0.0

    def trace(self, **setting: Any) -> Trace:
        record = Recorder()
        random = np.random.default_rng(4)
        ranks = len(self.compute_ms)
        at = 0.0
        for step in range(self.steps):
            ready = []
            for rank, compute in enumerate(self.compute_ms):
                then = at
                todo = self.spans.get((rank, None), []) + self.spans.get((rank, step), [])
                for name, lasts in todo:
                    record.add(rank, "SPAN", then, then + lasts, name)
                    then += lasts
                ready.append(then + compute + self.noise_ms * random.exponential())
            late = self.response_ms or [0.0] * ranks
            heard = max(ready) + 0.1
            end = heard + max(late) + self.bucket_ms
            for rank in range(ranks):
                self._rank(record, rank, step, (at, ready[rank], heard + late[rank], end))
            at = end + 0.2
        return record.trace(ranks, **setting)

    def _rank(self, record: Recorder, rank: int, step: int, times: tuple[float, ...]) -> None:
        at, ready, heard, end = times
        size = self.tensors * self.tensor_bytes
        off = self.asleep_ms[rank] if self.asleep_ms else 0.0
        lacking = self.no_processor_ms[rank] if self.no_processor_ms else 0.0
        ran_us = round(1000 * (self.compute_ms[rank] + 0.2 - off - lacking)) if self.ran else 0
        waited_us = round(1000 * lacking)
        record.add(rank, "STEP", at, end + 0.2, seq=step, arg=ran_us, bucket=waited_us)
        record.add(rank, "BLOCKED", ready, end)
        record.add(
            rank,
            "BUCKET",
            heard,
            end,
            "nothing else was ready",
            seq=self.tensors,
            arg=size,
            bucket=step,
        )
        record.add(rank, "CYCLE", heard, heard, seq=step, arg=self.tensors, bucket=size)
        for index in range(self.tensors):
            key = {"seq": step * self.tensors + index, "bucket": step}
            name = self.names.format(index)
            asked = ready - (self.tensors - 1 - index) * self.apart_ms
            record.add(rank, "NEGOTIATE", asked, heard, name, **key, arg=int(self.cached))
            record.add(rank, "QUEUE", heard, heard, name, **key)
            record.add(rank, "ALLREDUCE", heard, end, name, **key, arg=self.tensor_bytes)
