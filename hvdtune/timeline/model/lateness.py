"""Which rank announced a collective last, and how far behind the first."""

from collections.abc import Iterable

import numpy as np
import pandas as pd

from hvdtune.timeline.model.schema import PROCESS_SET_UNIT, HasEvents

# What tells one collective from all others, the same on every rank.
COLLECTIVE_KEY = ("name", "process_set", "seq")


def lateness(trace: HasEvents, seqs: Iterable[int] | None = None) -> pd.DataFrame:
    """One row per collective whose announcement by at least two ranks is in the trace.

    Args:
        seqs: keep to collectives with these sequence numbers; None means all.

    Returns:
        Columns name (categories of the events), process_set, seq, last_rank (-1 where the ranks'
        clocks are not known well enough to tell), late_ns (the last rank's distance to the first).
    """
    events = trace.events
    if seqs is not None:
        events = events[events["seq"].isin(list(seqs))]
    both = pd.concat([_recorded(events), _computed(events, trace)], ignore_index=True)
    return both.drop_duplicates(list(COLLECTIVE_KEY), ignore_index=True)


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
