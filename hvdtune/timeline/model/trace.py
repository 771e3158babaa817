"""A trace of any format: its slices, and the events of hvdtune's kinds among them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pandas as pd

from hvdtune.plural import counted
from hvdtune.timeline.model.counters import Counters, counters_of
from hvdtune.timeline.model.events_of_slices import events_of, others_of, unused_of
from hvdtune.timeline.model.flows import Flows, flows_of
from hvdtune.timeline.model.other_slices import OtherSlices, sort_others
from hvdtune.timeline.model.slices import File
from hvdtune.timeline.model.slices_of_events import counts_of, slices_of

# From slices and the events among them to events that findings can use.
InferEvents = Callable[[pd.DataFrame, pd.DataFrame], pd.DataFrame]


@dataclass(frozen=True, repr=False)
class Trace:
    """What was read of one or several files, on one clock.

    It holds the events that a job recorded, or the slices that were parsed, and derives the other
    when it is asked for.

    Attributes:
        recorded: `events`, where they are not derived from `parsed`.
        meta: "ranks": {rank: metadata its file carries}; "dropped": {rank: records lost};
            "clock": {rank: see `clock.ClockFit`}; "shapes": {tensor: dtype and shape, as in
            "float32[64,3]"}, of groups several; "origin_ns" and, where known, "origin_unix_ns":
            time 0 on rank 0's monotonic clock and in ns since 1970; "gaps": sentences on evidence
            that files of these formats never hold; "unnamed_tensors": whether those of the trace
            stand for all collectives of one kind; "unknown_cache": whether nothing in files that
            may tell it says which announcements hit the response cache.
        warnings: what could not be read or is not known, one sentence each, with byte offsets.
        files: what it was read from.
        parsed: `slices`, where they are not derived from `recorded`.
        parsed_counts: `counts` of what was parsed.
        infer: completes the events of `parsed`; see `formats.detection`.
        kept_others: `others`, where `parsed` is not kept.
        kept_flows, kept_counters: `flows` and `counters`, where `parsed` is not kept.
        unused: events that are in none of `events`, `others`, `flows` and `counters`, where
            `parsed` is not kept.
        kept_slices: how many there were, where `parsed` is not kept.
        kept_files_of_ranks: see `duplicate_ranks.files_of_ranks`, where `parsed` is not kept.
    """

    recorded: pd.DataFrame | None = None
    meta: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    files: tuple[File, ...] = ()
    parsed: pd.DataFrame | None = None
    parsed_counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    infer: InferEvents | None = None
    kept_others: OtherSlices | None = None
    kept_flows: Flows | None = None
    kept_counters: Counters | None = None
    unused: int = 0
    kept_slices: int | None = None
    kept_files_of_ranks: tuple[tuple[int, str, str], ...] = ()

    @cached_property
    def events(self) -> pd.DataFrame:
        """One row per event of hvdtune's kinds, ordered by begin_ns.

        Columns rank (int32), kind and name (categories of text), begin_ns, end_ns, seq, bucket, arg
        (int64; `schema.KINDS` says what they mean). Times are rank 0's clock, 0 is the first event.
        For LATE, which only version 0.1 recorded, end - begin is how late the last rank was; for
        CLOCK, the round trip; seq of CLOCK is the measured offset in ns.
        """
        if self.recorded is not None:
            return self.recorded
        assert self.parsed is not None
        events = events_of(self.parsed)
        return events if self.infer is None else self.infer(self.parsed, events)

    @cached_property
    def others(self) -> OtherSlices | None:
        """Slices of kinds that only other programs record, on the clock of `events`; None: none."""
        return self.kept_others if self.parsed is None else sort_others([others_of(self.parsed)])

    @cached_property
    def flows(self) -> Flows | None:
        """Arrows between slices of other programs; None: nothing tells of any."""
        return self.kept_flows if self.parsed is None else flows_of(self.parsed)

    @cached_property
    def counters(self) -> Counters | None:
        """Counters of other programs; None: nothing tells of any."""
        return self.kept_counters if self.parsed is None else counters_of(self.parsed)

    @cached_property
    def slices(self) -> pd.DataFrame:
        """Everything that a viewer would draw; see `slices`."""
        return slices_of(self) if self.parsed is None else self.parsed

    @property
    def slice_count(self) -> int:
        """How many `slices` there are, without making them."""
        if self.kept_slices is not None:
            return self.kept_slices
        rows = self.recorded if self.parsed is None else self.parsed
        return 0 if rows is None else len(rows)

    @cached_property
    def counts(self) -> Mapping[str, Mapping[str, int]]:
        """Events in the files by phase letter: {"X": {"read": 9, "shown": 8, "reported": 1}}.

        Each is shown (an E as the end of a slice, an M as a title) or told of in `warnings`.
        """
        told = self.parsed is not None or self.parsed_counts
        return self.parsed_counts if told else counts_of(self.events)

    @property
    def ranks(self) -> dict[int, dict[str, Any]]:
        """Metadata of each rank: host, size, versions, clock, records lost."""
        return ranks_of(self.meta)

    @property
    def origin_unix_ns(self) -> int | None:
        """Time 0 in ns since 1970; None: unknown."""
        return self.meta.get("origin_unix_ns")

    def left_out(self) -> list[str]:
        """Sentences on events that neither `events` nor any other attribute has."""
        left = self.unused if self.parsed is None else unused_of(self.parsed)
        told = []
        flows, counters = self.flows, self.counters
        if flows is not None and self.parsed is not None:
            left -= flows.events
        if counters is not None and self.parsed is not None:
            left -= counters.events
        if flows is not None and flows.alone:
            left -= flows.alone
            told.append(
                f"{counted(flows.alone, 'flow event')} without another end in the trace, so no "
                f"arrow is drawn: the first is {flows.first_alone}; the other end is before or "
                "after the recorded time, so record for longer if the arrow matters"
            )
        if counters is not None and counters.without_number:
            left -= counters.without_number
            told.append(
                f"{counted(counters.without_number, 'counter event')} without a number in the "
                f"arguments, so nothing is drawn: the first is {counters.first_without}; a counter "
                'is written as "args": {"what": 3}'
            )
        if left:
            told.append(
                f"{counted(left, 'event')} of kinds that are not drawn, such as objects and memory "
                "dumps: `hvdtune timeline stats` counts them by phase letter"
            )
        return told

    def __repr__(self) -> str:
        """One line: how many slices there are, of which ranks, and from how many files."""
        parts = (
            counted(self.slice_count, "slice"),
            counted(len(self.ranks), "rank"),
            counted(len(self.files), "file"),
            counted(len(self.warnings), "warning"),
        )
        return f"<Trace: {', '.join(parts)}>"


def ranks_of(meta: Mapping[str, Any]) -> dict[int, dict[str, Any]]:
    """`Trace.ranks` from `Trace.meta`."""
    ranks: dict[int, dict[str, Any]] = {}
    for rank, known in meta.get("ranks", {}).items():
        ranks[rank] = dict(known) if isinstance(known, dict) else {}
    for key in ("clock", "dropped"):
        for rank, known in meta.get(key, {}).items():
            ranks.setdefault(rank, {})[key] = known
    return ranks


def meta_of(ranks: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    """`Trace.meta` from `Trace.ranks`."""
    meta: dict[str, Any] = {"ranks": {}, "clock": {}, "dropped": {}}
    for rank, known in ranks.items():
        rest = dict(known)
        for key in ("clock", "dropped"):
            if key in rest:
                meta[key][rank] = rest.pop(key)
        meta["ranks"][rank] = rest
    return meta
