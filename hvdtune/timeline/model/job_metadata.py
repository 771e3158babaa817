"""What a trace says about the job besides its events."""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import msgspec

from hvdtune.timeline.model.trace import Trace

Value = bool | int | float | str


@dataclass(frozen=True)
class JobMetadata:
    """What findings need to know of a job.

    Attributes:
        size: ranks of the job.
        ranks: those whose events are there, in order.
        hosts: {rank: host}; ranks whose host is not known are absent.
        setting: the knobs in force at the end; empty where the trace does not say.
        changes: how often a setting was adopted.
        settings: how many different ones were.
        clock_doubt_us: {rank: by how much its times may be wrong}.
        dropped: records lost.
        gaps: what traces of this format never tell, one sentence each.
        link_gbps: what a link between hosts can carry, if somebody said so, in 10^9 bit/s.
        was_tuned: a study of the job has already looked for a better setting.
    """

    size: int
    ranks: tuple[int, ...]
    hosts: Mapping[int, str] = field(default_factory=dict)
    setting: Mapping[str, Value] = field(default_factory=dict)
    changes: int = 0
    settings: int = 0
    clock_doubt_us: Mapping[int, float] = field(default_factory=dict)
    dropped: int = 0
    gaps: tuple[str, ...] = ()
    link_gbps: float | None = None
    was_tuned: bool = False

    @property
    def missing_ranks(self) -> int:
        """How many ranks of the job have no events."""
        return self.size - sum(0 <= rank < self.size for rank in self.ranks)

    def first_missing(self, most: int) -> list[int]:
        """The lowest ranks without events, at most so many."""
        here = set(self.ranks)
        # A damaged trace may have any number as its rank: the others are not listed to be counted.
        return list(islice((rank for rank in range(self.size) if rank not in here), most))


def job_metadata_of(trace: Trace, link_gbps: float | None = None) -> JobMetadata:
    """Collect them.

    Args:
        trace: of one job.
        link_gbps: see `JobMetadata`.
    """
    known = trace.meta.get("ranks", {})
    ranks = tuple(sorted(trace.events["rank"].unique().tolist()))
    sizes = [row.get("size") for row in known.values()]
    whole = [size for size in sizes if isinstance(size, int) and 0 < size <= 1_000_000]
    clock = trace.meta.get("clock", {})
    adopted = _adopted(trace)
    return JobMetadata(
        size=max([*whole, *(rank + 1 for rank in ranks)], default=0),
        ranks=ranks,
        hosts={
            rank: row["host"] for rank, row in known.items() if isinstance(row.get("host"), str)
        },
        setting=_last_setting(trace, adopted),
        changes=len(adopted),
        settings=len(set(adopted)),
        clock_doubt_us={rank: fit.get("residual_us", 0.0) for rank, fit in clock.items()},
        dropped=sum(trace.meta.get("dropped", {}).values()),
        gaps=tuple(trace.meta.get("gaps", ())),
        link_gbps=link_gbps,
    )


def _adopted(trace: Trace) -> list[str]:
    """The settings that rank 0 adopted, as JSON, in order."""
    events = trace.events
    adopted = events[(events["kind"] == "KNOB_ADOPTED") & (events["rank"] == events["rank"].min())]
    return [str(text) for text in adopted["name"]]


def _last_setting(trace: Trace, adopted: Sequence[str]) -> dict[str, Value]:
    """The last of `adopted`, else the one that a rank started with."""
    for text in reversed(adopted):
        with contextlib.suppress(msgspec.DecodeError):
            found = msgspec.json.decode(text)
            if isinstance(found, dict):
                return _values(found)
    rows = [row.get("start_setting") for _, row in sorted(trace.meta.get("ranks", {}).items())]
    start: Any = next((row for row in rows if isinstance(row, dict)), {})
    return _values(start)


def _values(found: Mapping[Any, Any]) -> dict[str, Value]:
    return {str(k): v for k, v in found.items() if isinstance(v, bool | int | float | str)}
