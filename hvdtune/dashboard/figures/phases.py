"""How long the phases of one tensor take."""

import plotly.graph_objects as go

from hvdtune.dashboard.figures.theme import Theme, empty_figure, pattern_of
from hvdtune.timeline.analysis.metrics.tensors import begins_under_way
from hvdtune.timeline.analysis.recorded import is_recorded
from hvdtune.timeline.model.schema import COLLECTIVES
from hvdtune.timeline.model.trace import Trace

_PHASES = {
    "negotiate": (("NEGOTIATE",), "#56b4e9", ""),
    "queue": (("QUEUE",), "#e69f00", "/"),
    "communicate": (COLLECTIVES, "#009e73", ""),
}
# Which of `recorded.FACTS` a trace has to tell.
_TOLD_BY = {"negotiate": "negotiation", "communicate": "bucket-begins"}


def phases_figure(trace: Trace, tensor: str, theme: Theme) -> go.Figure:
    """Histograms over all ranks and operations of the tensor."""
    own = trace.events[trace.events["name"] == tensor]
    figure = empty_figure(theme, 300)
    for phase, (kinds, colour, pattern) in _PHASES.items():
        rows = own[own["kind"].isin(kinds)]
        if rows.empty or not is_recorded(trace, _TOLD_BY.get(phase, "collectives")):
            continue
        begin = rows["begin_ns"].to_numpy()
        if phase == "communicate":
            begin = begins_under_way(rows, trace.events)
        lasted = (rows["end_ns"].to_numpy() - begin) / 1e6
        figure.add_trace(
            go.Histogram(
                name=f"{phase} ({len(lasted)} times)",
                x=lasted,
                nbinsx=60,
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
