"""Cycles of the negotiation: how often rank 0 sends what is ready, and how much."""

import numpy as np
import pandas as pd

from hvdtune.plural import counted, sized

TITLE = "Cycles"


def table(events: pd.DataFrame) -> pd.DataFrame:
    """One row per step of the lowest rank that has cycles; -1: before the first step, or after.

    Args:
        events: see `schema.Trace`.

    Returns:
        Columns step, cycles, tensors_per_cycle, bytes_per_cycle, interval_ms_p50 (between cycles).
    """
    cycles = events[events["kind"] == "CYCLE"]
    cycles = cycles[cycles["rank"] == cycles["rank"].min()]
    steps = events[(events["kind"] == "STEP") & events["rank"].isin(cycles["rank"])]
    steps = steps.sort_values("begin_ns")
    at = cycles["begin_ns"].to_numpy()
    where = np.searchsorted(steps["begin_ns"].to_numpy(), at, side="right") - 1
    inside = (
        (where >= 0) & (at < steps["end_ns"].to_numpy()[np.maximum(where, 0)])
        if len(steps)
        else np.zeros(len(at), bool)
    )
    number = np.where(inside, steps["seq"].to_numpy()[where], -1) if len(steps) else -1
    by = cycles.assign(step=number, interval=np.diff(at, prepend=np.nan) / 1e6).groupby("step")
    rows = by.agg(
        cycles=("seq", "size"),
        tensors_per_cycle=("arg", "mean"),
        bytes_per_cycle=("bucket", "mean"),
        interval_ms_p50=("interval", "median"),
    )
    return pd.DataFrame(rows.reset_index())


def sentence(table: pd.DataFrame) -> str:
    """A median step."""
    steps = table[table["step"] >= 0]
    if steps.empty:
        return "There are no cycles in any step."
    middle = steps.median()
    return (
        f"The median step has {counted(middle['cycles'], 'cycle')} of "
        f"{counted(middle['tensors_per_cycle'], 'tensor')} and {sized(middle['bytes_per_cycle'])}."
    )
