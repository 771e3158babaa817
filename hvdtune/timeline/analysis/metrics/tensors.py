"""Phases of each tensor: how long it was negotiated, queued and communicated, and who was last."""

import pandas as pd

from hvdtune.timeline.analysis.phases import tensor_table
from hvdtune.timeline.model.trace import Trace

TITLE = "Tensors"


def table(events: pd.DataFrame) -> pd.DataFrame:
    """See `phases.tensor_table`."""
    return tensor_table(Trace(events))


def sentence(table: pd.DataFrame) -> str:
    """How many there are, and the largest."""
    if table.empty:
        return "No tensor was reduced, gathered or broadcast."
    largest = table.sort_values("bytes").iloc[-1]
    return (
        f"{len(table)} tensors; the largest is {largest['tensor']} with "
        f"{largest['bytes'] / 2**20:.2f} MiB, {largest['communicate_p50_us']:.0f} us in its bucket."
    )
