"""A synthetic trace: what ranks of a small training run would have recorded."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hvdtune.timeline import Trace
from hvdtune.timeline.model.event_table import make_events
from hvdtune.timeline.model.schema import COLUMNS, KIND_NAMES

HOSTILE = '<img src=x onerror="window.pwned=1"><b>bold</b>'


@dataclass
class Recording:
    """Events in the order they are added; `add` takes us."""

    rows: list[tuple[Any, ...]] = field(default_factory=list)

    def add(
        self, rank: int, kind: str, span_us: tuple[float, float], *, name: str = "", **numbers: int
    ) -> None:
        """Record one event; numbers are seq, bucket, arg (default 0)."""
        begin, end = (int(at * 1e3) for at in span_us)
        tail = (numbers.get(key, 0) for key in ("seq", "bucket", "arg"))
        self.rows.append((rank, kind, name, begin, end, *tail))

    def trace(self, ranks: int, warnings: list[str] | None = None) -> Trace:
        """The events as a Trace of `ranks` ranks on one host each."""
        columns = {
            key: np.array([row[at] for row in self.rows], dtype=np.int64)
            for at, key in enumerate(COLUMNS)
            if key not in ("kind", "name")
        }
        names = sorted({row[2] for row in self.rows})
        columns["kind"] = np.array([KIND_NAMES.index(row[1]) for row in self.rows], dtype=np.int64)
        columns["name"] = np.array([names.index(row[2]) for row in self.rows], dtype=np.int64)
        meta = {
            "ranks": {rank: {"rank": rank, "host": f"node-{rank}", "pid": 100 + rank}
                      for rank in range(ranks)},
            "clock": {rank: {"residual_us": 0.4 * rank, "samples": rank} for rank in range(ranks)},
            "dropped": {},
        }  # fmt: skip
        return Trace(make_events(columns, names), meta, warnings or [])


def training_trace(
    *,
    ranks: int = 2,
    steps: int = 6,
    tensors: int = 12,
    hostile: bool = True,
    seed: int = 1,
    step_us: int = 40_000,
) -> Trace:
    """Tensors go out in buckets of four; the last rank is often late. Short steps are for few."""
    rng = np.random.default_rng(seed)
    names = [f"model.layer{i // 2}.{'weight' if i % 2 == 0 else 'bias'}" for i in range(tensors)]
    if hostile:
        names[1] = HOSTILE
    recording, seq, bucket = Recording(), 0, 0
    for rank in range(ranks):
        recording.add(rank, "BROADCAST", (1_000, 1_900), name=names[0], seq=0, bucket=0, arg=4096)
    for step in range(steps):
        start = 4_000 + step * step_us
        for rank in range(ranks):
            length = step_us - 2_000 + float(rng.uniform(0, 1500))
            recording.add(rank, "STEP", (start, start + length), seq=step)
        for first in range(0, tensors, 4):
            bucket, group = bucket + 1, names[first : first + 4]
            base = start + 9_000 + first * 26_000 / tensors
            _bucket(recording, rng, list(range(ranks)), (bucket, seq + 1, base), group)
            seq += len(group)
    recording.add(0, "KNOB_ADOPTED", (44_000, 44_000), name='{"cycle_time_ms": 0.5}', arg=1)
    return recording.trace(ranks, ["rank 1: 12 events were dropped while the ring was full"])


def _bucket(
    recording: Recording,
    rng: np.random.Generator,
    ranks: list[int],
    place: tuple[int, int, float],
    group: list[str],
) -> None:
    bucket, seq, base = place
    ready = base + 900 * len(group) + 1_200
    done = ready + 3_400
    for position, name in enumerate(group):
        number, size = seq + position, 40_000 * (position + 1)
        announced = [base + 900 * position + float(rng.uniform(0, 700)) for _ in ranks]
        announced[-1] += 350
        answered = ready - 500
        for rank in ranks:
            where = {"name": name, "seq": number, "bucket": bucket}
            recording.add(rank, "NEGOTIATE", (announced[rank], answered), **where, arg=1)
            recording.add(rank, "QUEUE", (answered, ready), **where)
            recording.add(rank, "ALLREDUCE", (ready, done), **where, arg=size)
    for rank in ranks:
        recording.add(
            rank, "BUCKET", (ready, done), name="cycle", seq=len(group), bucket=bucket, arg=400_000
        )
        recording.add(rank, "CYCLE", (ready - 400, ready - 400), seq=bucket, bucket=400_000, arg=4)
        at = ready
        for kind, length in (("PACK", 500), ("REDUCE", 900), ("EXCHANGE", 1_500), ("UNPACK", 500)):
            recording.add(rank, kind, (at, at + length), bucket=bucket, arg=400_000)
            at += length
