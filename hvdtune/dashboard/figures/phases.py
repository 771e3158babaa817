"""How long the phases of one tensor take."""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from hvdtune.dashboard.figures.theme import Theme, empty_figure, pattern_of
from hvdtune.timeline.analysis.metrics.tensors import begins_under_way
from hvdtune.timeline.analysis.recorded import is_recorded
from hvdtune.timeline.model.schema import COLLECTIVES
from hvdtune.timeline.model.trace import Trace

MOST_BINS = 60
_PHASES = {
    "negotiate": (("NEGOTIATE",), "#56b4e9", ""),
    "queue": (("QUEUE",), "#e69f00", "/"),
    "communicate": (COLLECTIVES, "#009e73", ""),
}
# Which of `recorded.FACTS` a trace has to tell.
_TOLD_BY = {"negotiate": "negotiation", "communicate": "bucket-begins"}


def phases_figure(trace: Trace, tensor: str, theme: Theme) -> go.Figure:
    """Histograms over all ranks and operations of the tensor, with the same bins."""
    figure = empty_figure(theme, 300)
    lasted = _lasted_ms(trace, tensor)
    bins = _bins(lasted.values())
    for phase, times in lasted.items():
        _, colour, pattern = _PHASES[phase]
        figure.add_trace(
            go.Histogram(
                name=f"{phase} ({len(times)} times)",
                x=times,
                xbins=bins,
                marker={
                    "color": colour,
                    "opacity": 0.7,
                    "pattern": pattern_of(pattern, colour, theme),
                },
                hovertemplate=f"{phase}: %{{y}} times %{{x}} ms<extra></extra>",
            )
        )
    figure.update_layout(barmode="overlay", showlegend=True)
    figure.update_xaxes(title="ms", rangemode="tozero")
    figure.update_yaxes(title="times")
    return figure


def _lasted_ms(trace: Trace, tensor: str) -> dict[str, NDArray[np.float64]]:
    """Of each phase that the trace tells, how long it lasted each time."""
    own = trace.events[trace.events["name"] == tensor]
    lasted = {}
    for phase, (kinds, _, _) in _PHASES.items():
        rows = own[own["kind"].isin(kinds)]
        if rows.empty or not is_recorded(trace, _TOLD_BY.get(phase, "collectives")):
            continue
        begin = rows["begin_ns"].to_numpy()
        if phase == "communicate":
            begin = begins_under_way(rows, trace.events)
        lasted[phase] = (rows["end_ns"].to_numpy() - begin) / 1e6
    return lasted


def _bins(series: Iterable[NDArray[np.float64]]) -> dict[str, Any]:
    """From 0 to the longest, as wide as 1, 2 or 5 of some power of ten."""
    longest = max((float(times.max()) for times in series), default=0.0)
    least = longest / MOST_BINS or 1.0
    power = 10.0 ** math.floor(math.log10(least))
    size = next(size for size in (power, 2 * power, 5 * power, 10 * power) if size >= least)
    return {"start": 0, "end": longest + size, "size": size}
