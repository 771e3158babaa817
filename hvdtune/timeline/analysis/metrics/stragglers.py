"""Who makes the others wait, how much, how steadily, and with what.

A rank's busy time is the part of a step in which it does not wait for communication. Steps end
together, so the others wait for the rank with most of it: no clock needs to be compared.
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from hvdtune.timeline.analysis import device_spans
from hvdtune.timeline.analysis.metrics.breakdown import (
    OFF_PROCESSOR,
    UNTOLD,
    announced_by_all,
    knows_computing,
    waited_for_ranks,
    waiting,
)
from hvdtune.timeline.model.intervals import joined
from hvdtune.timeline.model.schema import Ints, Spans
from hvdtune.timeline.model.trace import Trace

TITLE = "Stragglers"

LEAST_COST_MS = 0.005  # per step: what is below is shown as 0.00

# Column of the breakdown -> what a rank is late with.
REASONS = {
    "input_ms": "input",
    "gc_ms": "garbage collection",
    "checkpoint_ms": "checkpoints",
    "no_processor_ms": "no processor",
    "gpu_idle_ms": "an idle GPU",
    "off_processor_ms": "off the processor",
    "compute_ms": "computing",
}
COLUMNS = (
    "rank",
    "own_ms",
    "late_percent",
    "cost_ms_per_step",
    "reason",
    "excess_ms",
    "waited_ms_per_step",
)
# Reason -> what the rank does, in a sentence.
_IT = {
    "input": "waits for input",
    "garbage collection": "collects garbage",
    "checkpoints": "writes checkpoints",
    "no processor": "has no processor to run on",
    "an idle GPU": "leaves its GPU idle",
    "off the processor": f"is {OFF_PROCESSOR} longer",
    "computing": "computes longer",
    UNTOLD: "is busy longer, with computing or unrecorded activity",
}


def table(breakdown: pd.DataFrame, *, of_streams: bool = False) -> pd.DataFrame:
    """One row per rank, the one that costs most first.

    Args:
        breakdown: see `metrics.breakdown`.
        of_streams: whether it was GPUs' streams that waited, see `breakdown.is_only_of_streams`:
            what they wait for other ranks is in their waits for buckets.

    Returns:
        Columns rank, own_ms (median of a step), late_percent (steps in which it had most busy
        time), cost_ms_per_step (saved if its busy time were that of the next rank; no more than
        what every other rank waits for ranks; NaN: how long these wait is not known), reason (the
        part of its busy time that costs most: compute, input ...; "" where it costs nothing),
        excess_ms (what that part costs, ms per step), waited_ms_per_step (for others). No rows
        where no busy time is known.
    """
    own = busy_times(breakdown)
    if own.empty:
        return pd.DataFrame(columns=list(COLUMNS))
    parts = {column: part(breakdown, column) for column in REASONS}
    told = knows_computing(breakdown)
    waited, in_buckets = (
        breakdown.groupby("rank")[key].mean() for key in ("wait_ms", "exposed_ms")
    )
    waits = (waited + in_buckets if of_streams else waited).to_numpy()
    rows = []
    for index, rank in enumerate(own.columns):
        others = np.delete(own.to_numpy(), index, axis=1)
        mine = own.to_numpy()[:, index]
        next_ms = others.max(axis=1) if others.size else mine
        more = float(np.maximum(mine - next_ms, 0).mean())
        # Ranks do not end their steps at the very same time, so it may seem to be busier than that.
        cost = float(np.append(np.delete(waits, index), more).min())
        reason, excess = _reason(own.to_numpy(), parts, index)
        if reason == REASONS["compute_ms"] and not told:
            reason = UNTOLD
        if cost < LEAST_COST_MS:
            reason, excess = "", 0.0
        rows.append(
            {
                "rank": int(rank),
                "own_ms": float(np.median(mine)),
                "late_percent": 100 * float((mine > next_ms).mean()),
                "cost_ms_per_step": cost,
                "reason": reason,
                "excess_ms": float(np.minimum(excess * cost / more, cost)) if more else 0.0,
                "waited_ms_per_step": float(waited[rank]),
            }
        )
    result = pd.DataFrame(rows, columns=list(COLUMNS))
    return result.sort_values("cost_ms_per_step", ascending=False, ignore_index=True)


def sentence(table: pd.DataFrame) -> str:
    """The rank that costs most."""
    if table.empty:
        return "The ranks' busy time is not known."
    if table["cost_ms_per_step"].isna().any():
        if len(table) < 2:
            return "The trace has only one rank of the job, so ranks cannot be compared."
        last = table.iloc[int(table["late_percent"].to_numpy().argmax())]
        return (
            f"Of the ranks in this trace rank {last['rank']} is busy longest in "
            f"{last['late_percent']:.0f} % of steps. The cost of a rank is not known, "
            "because some ranks are missing from the trace."
        )
    if len(table) < 2:
        return "A single rank never waits for other ranks."
    worst = table.iloc[0]
    if not worst["reason"]:
        return "No rank delays the others, according to this trace."
    return (
        f"Rank {worst['rank']} is last in {worst['late_percent']:.0f} % of steps; all steps "
        f"would be {worst['cost_ms_per_step']:.2f} ms shorter (mean) if it were busy no longer "
        f"than the next rank: {worst['excess_ms']:.2f} ms of that because it "
        f"{_IT[worst['reason']]}."
    )


def busy_times(breakdown: pd.DataFrame) -> pd.DataFrame:
    """ms of a step in which a rank did not wait for communication: a row per step, a column per
    rank.

    Only steps that every rank has.
    """
    steps, ranks, own = _wide(breakdown, _busy_ms(breakdown))
    known = ~np.isnan(own).any(axis=1)
    return pd.DataFrame(
        own[known], pd.Index(steps[known], name="step"), pd.Index(ranks, name="rank")
    )


def _busy_ms(breakdown: pd.DataFrame) -> NDArray[np.float64]:
    return (breakdown["step_ms"] - breakdown["blocked_ms"]).to_numpy(np.float64)


def _wide(
    breakdown: pd.DataFrame, values: NDArray[np.float64]
) -> tuple[Ints, Ints, NDArray[np.float64]]:
    """Steps, ranks, and the values: a row per step, a column per rank, NaN where there is none.

    As `DataFrame.pivot`, which takes ten times as long for few steps.
    """
    steps, row = np.unique(breakdown["step"].to_numpy(), return_inverse=True)
    ranks, column = np.unique(breakdown["rank"].to_numpy(), return_inverse=True)
    wide = np.full((len(steps), len(ranks)), np.nan)
    wide[row, column] = values
    return steps, ranks, wide


def waits_for(trace: Trace, breakdown: pd.DataFrame) -> pd.DataFrame:
    """ms per step in which a rank waits for ranks that have not announced, by the last of them.

    A row adds up to what `table` calls `waited_ms_per_step`: where a rank waits for several at
    once, the time counts for the one that it waits for longest.

    Args:
        trace: as read.
        breakdown: its steps, see `metrics.breakdown`.

    Returns:
        A row per rank that waits, a column per rank that announced last.
    """
    events, gpus = trace.events, device_spans.of_all(trace)
    asked = announced_by_all(events, ("rank", "begin_ns", "all_ns", "last_rank"))
    ranks = sorted(breakdown["rank"].unique().tolist())
    result = pd.DataFrame(0.0, index=ranks, columns=ranks)
    for rank in ranks:
        steps = breakdown[breakdown["rank"] == rank]
        windows = steps["begin_ns"].to_numpy(), steps["end_ns"].to_numpy()
        own = events[events["rank"] == rank]
        blocked, bucket = waiting(own, gpus.get(rank) if gpus else None)
        mine = asked[(asked["rank"] == rank) & asked["last_rank"].isin(ranks)]

        def waited_ms(
            lacking: Spans,
            blocked: Spans = blocked,
            bucket: Spans = bucket,
            windows: Spans = windows,
        ) -> float:
            return float(waited_for_ranks(blocked, lacking, bucket, windows).mean()) / 1e6

        lacking = {
            int(str(last)): (rows["begin_ns"].to_numpy(), rows["all_ns"].to_numpy())
            for last, rows in mine.groupby("last_rank")
            if last != rank
        }
        seen: list[Spans] = []
        before = 0.0
        for last in sorted(lacking, key=lambda last: -waited_ms(lacking[last])):
            seen.append(lacking[last])
            until = waited_ms(joined(*seen))
            result.loc[rank, last] = until - before
            before = until
    return result


def part(breakdown: pd.DataFrame, column: str) -> NDArray[np.float64]:
    """A column of the steps that every rank has, a row per step and a column per rank.

    What is not known counts as 0.
    """
    _, _, lasts = _wide(breakdown, breakdown["step_ms"].to_numpy(np.float64))
    _, _, wide = _wide(breakdown, breakdown[column].to_numpy(np.float64))
    return np.nan_to_num(wide[~np.isnan(lasts).any(axis=1)])


def _reason(
    times: NDArray[np.float64], parts: Mapping[str, NDArray[np.float64]], mine: int
) -> tuple[str, float]:
    """What a rank's cost is made of: the part in which it exceeds the next rank most.

    The ms per step of all parts add up to that by which its busy time exceeds the next one's.

    Args:
        times: busy times; `parts` of them by their `REASONS`, and the rank's place in them.
    """
    if len(times) == 0 or times.shape[1] < 2:
        return REASONS["compute_ms"], 0.0
    next_ms = np.where(np.arange(times.shape[1]) == mine, -np.inf, times)
    late = times[:, mine] > next_ms.max(axis=1)
    following, steps = next_ms.argmax(axis=1), np.arange(len(times))
    excess = {}
    for column, of_part in parts.items():
        excess[column] = float(((of_part[:, mine] - of_part[steps, following]) * late).mean())
    # What is off the processor is part of what is called computing.
    if excess["off_processor_ms"] < excess["compute_ms"] / 2:
        excess["off_processor_ms"] = 0.0
    else:
        excess["compute_ms"] -= excess["off_processor_ms"]
    most = max(excess, key=lambda column: excess[column])
    return REASONS[most], excess[most]
