"""Flows of other programs: arrows from one slice to another, as of a launch to its kernel."""

from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from hvdtune.timeline.model.schema import Ints

FLOW_LETTERS: Final = ("s", "t", "f")  # begin, step and end of a flow, in this order
_KEY: Final = ["file", "category", "name", "id"]
_PLACE: Final = ["rank", "pid", "tid"]


@dataclass(frozen=True)
class Flows:
    """Arrows, by begin.

    Attributes:
        begin_ns, end_ns: where each leaves and arrives; a clock may run backward between them.
        source, target: on which thread, as a number of `places`.
        places: rank (at least 0), pid and tid of threads.
        name: of each.
        events: how many events of the files they are.
        alone: how many more there are, of which the file does not have the other end.
        first_alone: which is the first of these, for a sentence.
    """

    begin_ns: Ints
    end_ns: Ints
    source: NDArray[np.int32]
    target: NDArray[np.int32]
    places: list[tuple[int, str, str]]
    name: pd.Categorical
    events: int
    alone: int = 0
    first_alone: str = ""

    def __len__(self) -> int:
        return len(self.begin_ns)

    def within(self, first_ns: int, last_ns: int) -> NDArray[np.intp]:
        """Return those that touch a stretch of time."""
        first = np.minimum(self.begin_ns, self.end_ns)
        last = np.maximum(self.begin_ns, self.end_ns)
        return np.flatnonzero((first < last_ns) & (last >= first_ns))


def flows_of(slices: pd.DataFrame) -> Flows:
    """The flows among a model's slices; of events with no other half there is none."""
    rows = slices.loc[slices["phase"].isin(FLOW_LETTERS), [*_KEY, *_PLACE, "begin_ns", "phase"]]
    order = pd.Series(range(len(FLOW_LETTERS)), FLOW_LETTERS)
    part = order[rows["phase"].astype(str)].to_numpy()
    key = rows.groupby(_KEY, observed=True, sort=False).ngroup().to_numpy()
    at = rows["begin_ns"].to_numpy()
    sort = np.lexsort((part, at, key))
    key, part, at = key[sort], part[sort], at[sort]
    begins = part != len(FLOW_LETTERS) - 1
    joined = np.flatnonzero((key[1:] == key[:-1]) & begins[:-1] & (part[1:] != 0))
    joined = joined[np.argsort(at[joined], kind="stable")]
    places = rows[_PLACE].astype({"pid": "str", "tid": "str"})
    places["rank"] = places["rank"].clip(lower=0)
    place, known = pd.factorize(pd.MultiIndex.from_frame(places))
    thread: NDArray[np.int32] = place[sort].astype(np.int32)
    paired = np.union1d(joined, joined + 1)
    alone = np.setdiff1d(np.arange(len(sort)), paired)
    first = alone[at[alone].argmin()] if len(alone) else None
    return Flows(
        at[joined],
        at[joined + 1],
        thread[joined],
        thread[joined + 1],
        [(int(rank), str(pid), str(tid)) for rank, pid, tid in known],
        rows["name"].iloc[sort[joined]].array,
        len(paired),
        len(alone),
        "" if first is None else described(rows.iloc[sort[first]]),
    )


def described(row: pd.Series) -> str:
    """Which event a row of slices is, for a sentence."""
    rank = f"rank {row['rank']}, " if row["rank"] >= 0 else ""
    return f"{str(row['name'])[:60]!r} ({rank}at {row['begin_ns'] / 1e6:,.3f} ms)"
