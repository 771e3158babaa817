"""How much of communication is hidden behind computing."""

import pandas as pd

TITLE = "Overlap"


def table(breakdown: pd.DataFrame) -> pd.DataFrame:
    """One row per rank.

    Args:
        breakdown: see `metrics.breakdown`.

    Returns:
        Columns rank, steps, communicate_ms_per_step (a bucket was under way), exposed_ms_per_step
        (the script waited for it), hidden_percent.
    """
    rows = breakdown.groupby("rank").agg(
        steps=("step", "size"),
        communicate_ms_per_step=("communicate_ms", "mean"),
        exposed_ms_per_step=("exposed_ms", "mean"),
    )
    hidden = 1 - rows["exposed_ms_per_step"] / rows["communicate_ms_per_step"]
    rows["hidden_percent"] = 100 * hidden.where(rows["communicate_ms_per_step"] > 0)
    return rows.reset_index()


def sentence(table: pd.DataFrame) -> str:
    """The overlap of the rank that has least of it."""
    known = table.dropna()
    if known.empty:
        return "There was no communication in any step."
    worst = known.sort_values("exposed_ms_per_step").iloc[-1]
    return (
        f"{worst['hidden_percent']:.0f} % of rank {worst['rank']:.0f}'s communication "
        f"({worst['communicate_ms_per_step']:.2f} ms per step) is hidden behind computing; "
        f"{worst['exposed_ms_per_step']:.2f} ms are not."
    )
