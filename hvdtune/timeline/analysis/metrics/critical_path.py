"""The chain of work through the ranks that made each step as long as it was.

A step's path is the busy time of its slowest rank, and what that rank still waited for when all had
announced: negotiation and communication. Shortening anything else shortens no step.
"""

import pandas as pd

from hvdtune.timeline.analysis.metrics.breakdown import (
    PARTS,
    apart_from_computing,
    words_of,
)
from hvdtune.timeline.analysis.metrics.stragglers import busy_times

TITLE = "Critical path"


def table(breakdown: pd.DataFrame) -> pd.DataFrame:
    """One row per rank and part of a step that is on the path, the longest first.

    Args:
        breakdown: see `metrics.breakdown`.

    Returns:
        Columns rank, part (see `metrics.breakdown`, without "_ms"; computing is apart from time off
        the processor as far as the trace tells that), ms_per_step (over all steps),
        percent (of the path), steps (in which this rank's part was on the path).
    """
    on_path = apart_from_computing(path_rows(breakdown))
    columns = [*PARTS, "off_processor_ms"]
    parts = on_path.melt(id_vars=["rank"], value_vars=columns, var_name="part", value_name="ms")
    by = parts[parts["ms"] > 0].groupby(["rank", "part"])["ms"].agg(["sum", "size"]).reset_index()
    by["part"] = by["part"].str.removesuffix("_ms")
    total = float(by["sum"].sum())
    by["ms_per_step"] = by["sum"] / max(len(on_path), 1)
    by["percent"] = 100 * by["sum"] / total if total else 0.0
    by = by.rename(columns={"size": "steps"}).sort_values("sum", ascending=False, ignore_index=True)
    return by[["rank", "part", "ms_per_step", "percent", "steps"]]


def sentence(table: pd.DataFrame) -> str:
    """The longest part."""
    if table.empty:
        return "The trace has no steps that all ranks share."
    first = table.iloc[0]
    return (
        f"Most of the path through the ranks is rank {first['rank']} {words_of(first['part'])}: "
        f"{first['ms_per_step']:.2f} ms per step, {first['percent']:.0f} % of it."
    )


def path_rows(breakdown: pd.DataFrame) -> pd.DataFrame:
    """The row of each step's slowest rank."""
    slowest = busy_times(breakdown).idxmax(axis=1)
    keyed = breakdown.set_index(["step", "rank"])
    return keyed.loc[list(slowest.items())].reset_index()
