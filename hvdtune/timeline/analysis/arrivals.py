"""Who announced last, of a trace that says when ranks announced and has no steps.

Horovod's timelines are of this kind: the negotiation of a tensor holds one tick for each rank, but
only where the response cache did not know the tensor. Steps are found from the recurrence of
tensors: what a training step reduces comes again in the next.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from hvdtune.plural import counted
from hvdtune.timeline.analysis.metrics import breakdown
from hvdtune.timeline.model.lateness import OPERATION, negotiations, ticks_by_rank
from hvdtune.timeline.model.trace import Trace


@dataclass(frozen=True)
class Arrivals:
    """What ticks tell.

    Attributes:
        ranks: those that have ticks.
        operations: how many were negotiated.
        known: a row for each of them of which every rank's tick is there: last (rank), late_ms
            (behind the last but one).
        found: a row for each step that the recurrence of tensors tells, by its number, without the
            first ones and the unfinished last one: begin_ns, end_ns, step_ms.
        steps: a row for each of them in which every operation is known: step_ms, last, late_ms (by
            how much the last announcement of this rank came after those of the others).
        has_marks: whether the trace marks steps, too, which then tell the step time.
    """

    ranks: tuple[int, ...]
    operations: int
    known: pd.DataFrame = field(repr=False)
    found: pd.DataFrame = field(repr=False)
    steps: pd.DataFrame = field(repr=False)
    has_marks: bool = False

    @property
    def step_ms(self) -> float:
        """How long a step lasts, the mean of all that were found; NaN: none was."""
        return float(self.found["step_ms"].mean())


def arrivals_of(trace: Trace) -> Arrivals | None:
    """Read the ticks of a trace; None without ticks of two ranks, or where ranks announce.

    A trace that Horovod and a profiler recorded together has steps, and yet no announcements.
    """
    events = trace.events
    has_steps = bool((events["kind"] == "STEP").any())
    announced = events.loc[events["kind"] == "NEGOTIATE", "rank"].nunique()
    if has_steps and announced == events["rank"].nunique():
        return None
    negotiated = negotiations(events)
    by_rank = ticks_by_rank(negotiated, trace.others)
    ranks = tuple(int(rank) for rank in by_rank.columns)
    if len(ranks) < 2:
        return None
    found = _found_steps(negotiated)
    steps = _steps(by_rank, negotiated, found["step_ms"])
    return Arrivals(ranks, len(negotiated), _latest(by_rank), found, steps, has_steps)


def table(arrivals: Arrivals) -> pd.DataFrame:
    """One row per rank, the one that costs most first.

    Returns:
        Columns rank, late_percent (steps in which it announced last), cost_ms_per_step (by how much
        steps would be shorter had it announced with the next to last), operations (that it
        announced last), late_ms (median of these, behind the next to last).
    """
    rows = []
    for rank in arrivals.ranks:
        own = arrivals.known.loc[arrivals.known["last"] == rank, "late_ms"]
        late = late_ms(arrivals, rank)
        rows.append(
            {
                "rank": rank,
                "late_percent": 100 * float((late > 0).mean()) if len(late) else np.nan,
                "cost_ms_per_step": float(late.mean()) if len(late) else np.nan,
                "operations": len(own),
                "late_ms": float(own.median()) if len(own) else np.nan,
            }
        )
    return pd.DataFrame(rows).sort_values(
        ["cost_ms_per_step", "operations"], ascending=False, ignore_index=True
    )


def late_ms(arrivals: Arrivals, rank: int) -> NDArray[np.float64]:
    """By how much a rank was the last of each step, 0 where it was not."""
    steps = arrivals.steps
    return np.where(steps["last"] == rank, steps["late_ms"], 0.0).astype(np.float64)


def sentence(arrivals: Arrivals) -> str:
    """Says of how many operations the last rank is known, and who it was most often."""
    known = len(arrivals.known)
    often = arrivals.known["last"].value_counts()
    text = (
        f"The trace records the announcements of every rank for {known:,} of "
        f"{counted(arrivals.operations, 'operation')}"
    )
    if known:
        text += f"; rank {often.index[0]} was last in {int(often.iloc[0]):,} of them"
    if known < arrivals.operations:
        text += "; record with HOROVOD_CACHE_CAPACITY=0 to get all announcements"
    return f"{text}."


def sentence_of_steps(arrivals: Arrivals) -> str:
    """Says how many steps there are, how they were found, and of which the last rank is known."""
    found = len(arrivals.found)
    if not found:
        return "No steps were found from the recurrence of tensors."
    known = f"{len(arrivals.steps):,}" if len(arrivals.steps) < found else "each"
    if not len(arrivals.steps):
        known = "none"
    lasting = "" if arrivals.has_marks else f" of {arrivals.step_ms:,.2f} ms (mean)"
    return (
        f"{counted(found, 'step')}{lasting} "
        f"{'was' if found == 1 else 'were'} found from the recurrence of tensors; all "
        f"announcements are known for {known} of them."
    )


def _latest(by_rank: pd.DataFrame) -> pd.DataFrame:
    """Which rank is the last of each row, and by how much, from a column per rank in ns."""
    ranks = by_rank.columns.to_numpy()
    times = by_rank.to_numpy(np.float64)
    if not len(times):
        return pd.DataFrame({"last": np.zeros(0, np.int64), "late_ms": np.zeros(0)})
    ordered = np.sort(times, axis=1)
    late = (ordered[:, -1] - ordered[:, -2]) / 1e6
    return pd.DataFrame({"last": ranks[times.argmax(axis=1)], "late_ms": late}, by_rank.index)


def _found_steps(negotiated: pd.DataFrame) -> pd.DataFrame:
    """`Arrivals.found`: a step begins with the first tensor that recurs as most of them do."""
    begins = _recurring(negotiated).groupby("seq")["begin_ns"].min().sort_index()
    whole = slice(breakdown.count_first(begins.index.to_numpy()[:-1]), -1)
    ends = begins.shift(-1).iloc[whole].astype("int64")
    found = pd.DataFrame({"begin_ns": begins.iloc[whole], "end_ns": ends})
    return found.assign(step_ms=(found["end_ns"] - found["begin_ns"]) / 1e6)


def _recurring(negotiated: pd.DataFrame) -> pd.DataFrame:
    """The operations on tensors that occur once in each step."""
    counts = negotiated.groupby("tensor")["seq"].transform("size")
    often = counts[counts > 2]
    if often.empty:
        return negotiated.iloc[:0]
    usual = int(often.mode().max())
    # A step that is cut off has some of its tensors once more than the others.
    return negotiated[counts.between(usual, usual + 1)]


def _steps(
    by_rank: pd.DataFrame, negotiated: pd.DataFrame, lengths: "pd.Series[float]"
) -> pd.DataFrame:
    recurring = _recurring(negotiated)
    wanted = recurring.groupby("seq").size()
    ticks = by_rank.join(recurring.set_index(list(OPERATION))[[]], how="inner")
    numbers = ticks.index.get_level_values("seq")
    whole = ticks.groupby(numbers).size().reindex(lengths.index, fill_value=0)
    last = ticks.groupby(numbers).max().reindex(lengths.index[_same(whole, wanted)])
    return _latest(last).assign(step_ms=lengths.reindex(last.index))


def _same(found: "pd.Series[int]", wanted: "pd.Series[int]") -> Sequence[bool]:
    return (found == wanted.reindex(found.index)).tolist()
