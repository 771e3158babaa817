"""Phases of each tensor: how long it was negotiated, queued and communicated, and who was last."""

import re
from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from hvdtune.plural import counted, sized
from hvdtune.timeline.analysis.metrics.breakdown import of_each_rank, of_kinds
from hvdtune.timeline.analysis.recorded import as_recorded
from hvdtune.timeline.model.lateness import lateness
from hvdtune.timeline.model.schema import COLLECTIVES, KINDS, Ints
from hvdtune.timeline.model.trace import Trace

TITLE = "Tensors"
UNNAMED = (
    "This trace does not record the tensors of its collectives: each row is all collectives of "
    "one kind."
)

_TENSOR_PHASES = {"negotiate": ("NEGOTIATE",), "queue": ("QUEUE",), "communicate": COLLECTIVES}


def table(events: pd.DataFrame) -> pd.DataFrame:
    """See `tensor_table`."""
    return tensor_table(Trace(events))


# "weight+2": the gradient of `weight` and two more small ones, packed into one tensor.
_PACKED: Final = re.compile(r"(?:allreduce\.)?(?P<first>.+)\+(?P<more>[0-9]+)")
# What hvdtune.torch reduces for itself.
_OWN: Final = re.compile(r"(?:allreduce\.)?layouts\..+")


def sentence(table: pd.DataFrame) -> str:
    """How many there are, of which operations, the largest, and what their names mean."""
    if table.empty:
        return "No tensor was reduced, gathered or broadcast."
    words = [_how_many(table), *notes(table["tensor"])]
    return " ".join(words)


def _how_many(table: pd.DataFrame) -> str:
    operations = table["operation"].value_counts()
    count = counted(len(table), "tensor")
    if len(operations) > 1:
        of_each = (f"{n:,} in {str(name).lower()}s" for name, n in operations.items())
        count = f"{count}: {', '.join(of_each)}"
    if table["bytes"].isna().all():
        return f"{count}; sizes are not recorded."
    largest = table.sort_values("bytes", na_position="first").iloc[-1]
    largest_of_all = f"the largest is {largest['tensor']} with {sized(largest['bytes'])}"
    if np.isnan(largest["communicate_p50_us"]):
        return f"{count}; {largest_of_all}."
    lasts = f"{largest['communicate_p50_us'] / 1000:,.2f} ms (median)"
    return f"{count}; {largest_of_all}, communicated in {lasts}."


def meaning(name: str) -> str:
    """What the name of a tensor means that the script did not give it; "": nothing."""
    if packed := _PACKED.fullmatch(name):
        more = counted(int(packed["more"]), "more small gradient")
        return (
            f"{name} is one tensor into which the gradient of {packed['first']} and {more} are "
            "packed."
        )
    if _OWN.fullmatch(name):
        return f"{name} is hvdtune's own: ranks use it to exchange which gradients are sparse."
    return ""


def notes(names: Iterable[str]) -> list[str]:
    """What names mean that the script did not give; of several of one sort the first."""
    found: dict[bool, str] = {}
    for name in names:
        if said := meaning(name):
            found.setdefault(_PACKED.fullmatch(name) is None, said)
    return list(found.values())


def tensor_table(trace: Trace) -> pd.DataFrame:
    """One row per tensor, over all ranks and occurrences; the most communication in all first.

    Times are durations of single occurrences. A bucket's tensors share its time, so communicate
    is the time of the bucket, see `begins_under_way`, and sums over tensors mean nothing.

    Returns:
        Columns tensor, dtype (and shape, "" where it is not recorded), operation and bytes (of the
        last occurrence; NaN where its size is not recorded), count (occurrences on the rank with
        most), {negotiate,queue,communicate,done}_{p50,p95}_us (done: from a rank's announcement to
        its end; NaN where they are not recorded), bucket_bytes (median, of the buckets it travels
        in; NaN where they are not recorded), last_rank (the rank that was last most often, -1 where
        unknown), last_rank_percent (how often it was), late_p95_us (how far the last rank was
        behind the first), late_ms (the sum of that).
    """
    # By numbers: pandas cannot always join groups of many categories with others.
    texts = trace.events["name"].cat.categories
    events = trace.events.assign(name=trace.events["name"].cat.codes)
    done = events.loc[of_kinds(events, COLLECTIVES), ["rank", "name", "kind", "arg"]]
    by_tensor = done.groupby("name")
    table = pd.DataFrame(
        {
            "operation": by_tensor["kind"].last().astype("str"),
            "bytes": by_tensor["arg"].last().astype(float),
            "count": done.groupby(["name", "rank"]).size().groupby("name").max(),
        }
    )
    moves = table["operation"].map({kind: KINDS[kind].on_link != (0, 0) for kind in COLLECTIVES})
    table["bytes"] = table["bytes"].where((table["bytes"] > 0) | ~moves.astype(bool))
    for phase, kinds in _TENSOR_PHASES.items():
        which = of_kinds(events, kinds)
        rows = events.loc[which, ["rank", "name", "bucket", "begin_ns", "end_ns"]]
        begin, end, name = (rows[key].to_numpy() for key in ("begin_ns", "end_ns", "name"))
        if phase == "communicate":
            begin = begins_under_way(rows, events)
        by_name = pd.Series((end - begin) / 1000).groupby(pd.Series(name, name="name"))
        for percent in (50, 95):
            table[f"{phase}_p{percent}_us"] = by_name.quantile(percent / 100)
    del done, by_tensor
    table = table.join(_from_announcement(events))
    table["bucket_bytes"] = table["bucket_bytes"].where(table["bucket_bytes"] > 0)
    table = table.join(_who_is_late(trace), how="left")
    table["last_rank"] = table["last_rank"].fillna(-1).astype("int64")
    # What comes once, such as a broadcast before the first step, matters less than its length says.
    in_all = table["communicate_p50_us"] * table["count"]
    table = table.loc[in_all.sort_values(ascending=False, kind="stable").index]
    table = table.rename_axis("tensor").reset_index()
    names = texts.take(table["tensor"].to_numpy()).astype("str")
    shapes = trace.meta.get("shapes", {})
    dtypes = [str(shapes.get(name, "")) for name in names]
    return as_recorded(trace, table.assign(tensor=names, dtype=dtypes))


def begins_under_way(collectives: pd.DataFrame, events: pd.DataFrame) -> Ints:
    """When each of these events is under way: from the begin of its bucket, where that is known.

    Of programs that record collectives alone, those of a rank begin when it comes to them. They
    are under way when the last rank has.

    Args:
        collectives: rows of `events`.
        events: see `schema.Trace`.
    """
    begin = collectives["begin_ns"].to_numpy().copy()
    buckets = events.loc[of_kinds(events, ("BUCKET",)), ["rank", "bucket", "begin_ns"]]
    if buckets.empty or not len(begin):
        return begin
    numbers = 1 + max(int(rows["bucket"].max()) for rows in (collectives, buckets))
    keys = [
        rows["rank"].to_numpy(np.int64) * numbers + rows["bucket"].to_numpy()
        for rows in (collectives, buckets)
    ]
    known, first = _found_in(*keys)
    begin[known] = np.maximum(begin[known], buckets["begin_ns"].to_numpy()[first])
    under_way: Ints = np.minimum(begin, collectives["end_ns"].to_numpy())
    return under_way


def _from_announcement(events: pd.DataFrame) -> pd.DataFrame:
    """For each tensor, the times from announcements to ends, and the bytes of its buckets.

    Rank by rank, since a join of all ranks' announcements would need several times their memory.
    """
    columns = ["rank", "kind", "name", "seq", "bucket", "arg", "begin_ns", "end_ns"]
    announced: list[_Values] = []
    carried: list[_Values] = []
    for _, own in of_each_rank(events[columns]):
        column = {name: own[name].to_numpy() for name in columns if name != "kind"}
        done, asked, bucket = (
            np.flatnonzero(of_kinds(own, kinds))
            for kinds in (COLLECTIVES, ("NEGOTIATE",), ("BUCKET",))
        )
        key = column["name"].astype(np.int64) * (int(column["seq"].max()) + 1) + column["seq"]
        known, first = _found_in(key[done], key[asked])
        lasted = column["end_ns"][done[known]] - column["begin_ns"][asked[first]]
        announced.append((column["name"][done[known]], lasted / 1000))
        known, first = _found_in(column["bucket"][done], column["bucket"][bucket])
        carried.append((column["name"][done[known]], column["arg"][bucket[first]]))
    lasted_by, bytes_by = (_grouped(values) for values in (announced, carried))
    return pd.DataFrame(
        {
            "done_p50_us": lasted_by.quantile(0.5),
            "done_p95_us": lasted_by.quantile(0.95),
            "bucket_bytes": bytes_by.median(),
        }
    )


_Values = tuple[NDArray[Any], NDArray[Any]]  # names' numbers, and a value of each


def _found_in(wanted: Ints, keys: Ints) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Which of `wanted` are among the keys, and where each is the first time."""
    known, first = np.unique(keys, return_index=True)
    if len(known) == 0:
        return np.empty(0, np.intp), np.empty(0, np.intp)
    place = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    found = np.flatnonzero(known[place] == wanted)
    return found, first[place[found]]


def _grouped(parts: list[_Values]) -> Any:
    some = parts or [(np.empty(0), np.empty(0))]
    names, values = (np.concatenate([part[k] for part in some]) for k in (0, 1))
    return pd.Series(values, dtype=float).groupby(pd.Series(names, name="name"))


def _who_is_late(trace: Trace) -> pd.DataFrame:
    found = lateness(trace)
    names = found["name"].astype(trace.events["name"].dtype)
    late = found.assign(name=names.cat.codes)
    late_us = (late["late_ns"] / 1000).groupby(late["name"])
    known = late[late["last_rank"] >= 0]
    ranks = known.groupby(["name", "last_rank"]).size().rename("times").reset_index()
    ranks = ranks.sort_values("times", ascending=False, kind="stable")
    most = ranks.groupby("name").first()
    return pd.DataFrame(
        {
            "last_rank": most["last_rank"],
            "last_rank_percent": 100 * most["times"] / late_us.size(),
            "late_p95_us": late_us.quantile(0.95),
            "late_ms": late_us.sum() / 1000,
        }
    )
