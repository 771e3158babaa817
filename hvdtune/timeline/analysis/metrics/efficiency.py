"""Parallel efficiency and what it is a product of.

The factors are those of the POP project (https://pop-coe.eu/node/69): load balance is mean over
maximum of the ranks' busy time; serialisation is that maximum over the time that an ideal network
would take, on which ranks still wait for one another; transfer is that time over the real one.
"""

import numpy as np
import pandas as pd

from hvdtune.timeline.analysis.metrics import stragglers

TITLE = "Efficiency"
FACTORS = {
    "parallel efficiency": "share of time in which ranks do not wait for communication",
    "load balance": "mean busy time of the ranks, relative to the busiest rank",
    "serialisation": "busy time of the busiest rank, relative to a step with instant "
    "transfers; low if different ranks are late in different steps",
    "transfer": "duration of a step with instant transfers, relative to its real duration",
}


def table(breakdown: pd.DataFrame) -> pd.DataFrame:
    """One row per factor, the first of which is the product of the others.

    None without steps of several ranks, or where it is not known how long these wait for another.

    Args:
        breakdown: see `metrics.breakdown`, cut from wait to wait.

    Returns:
        Columns factor, percent, steps (they rest on), meaning.
    """
    own = stragglers.busy_times(breakdown).to_numpy()
    if own.shape[1] < 2 or len(own) == 0 or breakdown["wait_ms"].isna().any():
        return pd.DataFrame({"factor": [], "percent": [], "steps": [], "meaning": []})
    step = stragglers.part(breakdown, "step_ms").mean()
    useful = own.mean(axis=0)
    ideal = (own + stragglers.part(breakdown, "wait_ms")).mean(axis=0).max()
    parts = (useful.mean() / useful.max(), useful.max() / ideal, ideal / step)
    percent = [100 * float(value) for value in (np.prod(parts), *parts)]
    columns = {"factor": list(FACTORS), "percent": percent, "steps": len(own)}
    return pd.DataFrame(columns | {"meaning": list(FACTORS.values())})


def sentence(table: pd.DataFrame) -> str:
    """The whole, and the factor that takes most."""
    if table.empty:
        return "The trace has no steps of several ranks with recorded waits."
    whole, parts = table.iloc[0], table.iloc[1:]
    worst = parts.sort_values("percent").iloc[0]
    return (
        f"Ranks do not wait for communication in {whole['percent']:.0f} % of their time; "
        f"the lowest factor is {worst['factor']} ({worst['percent']:.0f} %)."
    )
