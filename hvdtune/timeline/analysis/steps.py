"""The steps that every page and command speaks of, however they were found."""

import numpy as np
import pandas as pd

from hvdtune.timeline.analysis.arrivals import Arrivals, arrivals_of
from hvdtune.timeline.analysis.metrics import breakdown
from hvdtune.timeline.model.trace import Trace

RECORDER = 0  # the rank of Horovod's that writes the timeline


def steps_of(trace: Trace) -> pd.DataFrame:
    """`breakdown.steady_steps`, or where none are marked those found from recurring tensors."""
    arrivals = arrivals_of(trace)
    if arrivals is None or arrivals.has_marks:
        return breakdown.steady_steps(trace)
    return found_steps(arrivals)


def found_steps(arrivals: Arrivals) -> pd.DataFrame:
    """Steps as of `breakdown.table`, of which nothing but begin, end and length is known."""
    known = arrivals.found.rename_axis("step").reset_index().assign(rank=RECORDER)
    unknown = {name: np.nan for name in breakdown.COLUMNS if name not in known}
    return known.assign(**unknown)[list(breakdown.COLUMNS)]
