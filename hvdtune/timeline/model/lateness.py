"""Which rank announced a collective last, and how far behind the first."""

from typing import Protocol

import numpy as np
import pandas as pd

from hvdtune.timeline.model.other_slices import OtherSlices
from hvdtune.timeline.model.schema import PROCESS_SET_UNIT, HasEvents

# What tells one collective from all others, the same on every rank.
COLLECTIVE_KEY = ("name", "process_set", "seq")
OPERATION = ("tensor", "seq")


class HasTicks(HasEvents, Protocol):
    """What may hold ticks of Horovod's; see `trace.Trace`."""

    @property
    def others(self) -> OtherSlices | None: ...


def lateness(trace: HasTicks) -> pd.DataFrame:
    """One row per collective whose announcement by at least two ranks is in the trace.

    In a timeline of Horovod's ticks are announcements: a collective counts if it has one of each
    rank that has any.

    Returns:
        Columns name (categories of the events), process_set, seq, last_rank (-1 where the ranks'
        clocks are not known well enough to tell), late_ns (the last rank's distance to the first).
    """
    found = lateness_of_announcements(trace)
    if trace.others is None:
        return found
    ticks = ticks_by_rank(negotiations(trace.events), trace.others)
    found = pd.concat([found, _ticked(ticks, trace.events)], ignore_index=True)
    return found.drop_duplicates(list(COLLECTIVE_KEY), ignore_index=True)


def lateness_of_announcements(trace: HasEvents) -> pd.DataFrame:
    """`lateness` of what ranks recorded as events of theirs."""
    both = [_recorded(trace.events), _computed(trace.events, trace)]
    found = pd.concat(both, ignore_index=True)
    return found.drop_duplicates(list(COLLECTIVE_KEY), ignore_index=True)


def negotiations(events: pd.DataFrame) -> pd.DataFrame:
    """What was negotiated: tensor (text), seq, begin_ns, end_ns."""
    rows = events.loc[events["kind"] == "NEGOTIATE", ["name", "seq", "begin_ns", "end_ns"]]
    return rows.rename(columns={"name": "tensor"}).astype({"tensor": "str"})


def ticks_by_rank(negotiated: pd.DataFrame, others: OtherSlices | None) -> pd.DataFrame:
    """When each rank announced, as the ticks say that lie in a negotiation of their tensor.

    Args:
        negotiated: see `negotiations`.

    Returns:
        A row for each of `OPERATION` that has the ticks of all ranks; a column for each rank that
        has any, in ns.
    """
    if others is None:
        return pd.DataFrame()
    ticks = others.of_kind("READY")[["rank", "process", "begin_ns"]]
    ticks = ticks.rename(columns={"process": "tensor", "begin_ns": "tick_ns"})
    found = pd.merge_asof(
        ticks.astype({"tensor": "str"}).sort_values("tick_ns"),
        negotiated.sort_values("begin_ns"),
        left_on="tick_ns",
        right_on="begin_ns",
        by="tensor",
    )
    inside = found[found["tick_ns"] <= found["end_ns"]]
    return inside.pivot_table(
        index=list(OPERATION), columns="rank", values="tick_ns", aggfunc="max"
    ).dropna()


def _ticked(by_rank: pd.DataFrame, events: pd.DataFrame) -> pd.DataFrame:
    """Ticks are on one clock, that of the rank that wrote the timeline."""
    rows = by_rank if by_rank.shape[1] > 1 else by_rank.iloc[:0]
    keys = rows.index.to_frame(index=False).reindex(columns=list(OPERATION))
    late_ns = rows.max(axis=1) - rows.min(axis=1)
    return pd.DataFrame(
        {
            "name": keys["tensor"].astype(events["name"].dtype),
            "process_set": np.zeros(len(rows), np.int64),
            "seq": keys["seq"].astype("int64"),
            "last_rank": rows.idxmax(axis=1).to_numpy(np.int64),
            "late_ns": late_ns.to_numpy(np.int64),
        }
    )


def _recorded(events: pd.DataFrame) -> pd.DataFrame:
    """Rows that the coordinator of version 0.1 recorded; its process sets had no number."""
    late = events[events["kind"] == "LATE"]
    return pd.DataFrame(
        {
            "name": late["name"],
            "process_set": np.zeros(len(late), np.int64),
            "seq": late["seq"],
            "last_rank": late["arg"],
            "late_ns": late["end_ns"] - late["begin_ns"],
        }
    )


def _computed(events: pd.DataFrame, trace: HasEvents) -> pd.DataFrame:
    columns = ["rank", "name", "seq", "begin_ns", "arg"]
    announced = events.loc[events["kind"] == "NEGOTIATE", columns]
    # Ordered by begin, as the events are.
    announced = announced.assign(process_set=announced["arg"] // PROCESS_SET_UNIT)
    by_collective = announced.groupby(list(COLLECTIVE_KEY), observed=True)[["rank", "begin_ns"]]
    first, last = by_collective.first(), by_collective.last()
    doubt_ns = _clock_doubt_ns(trace)
    late_ns = last["begin_ns"] - first["begin_ns"]
    certain = late_ns >= first["rank"].map(doubt_ns) + last["rank"].map(doubt_ns)
    last_rank = last["rank"].astype("int64").where(certain, -1)
    rows = pd.DataFrame({"last_rank": last_rank, "late_ns": late_ns})
    return rows[first["rank"] != last["rank"]].reset_index()


def _clock_doubt_ns(trace: HasEvents) -> dict[int, float]:
    clocks = trace.meta.get("clock", {})
    return {
        int(rank): 1000 * clocks.get(rank, {}).get("residual_us", 0.0)
        for rank in trace.events["rank"].unique()
    }
