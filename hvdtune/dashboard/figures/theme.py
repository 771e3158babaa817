"""Colours and the layout every figure shares, in a light and a dark version."""

import html
from dataclasses import dataclass

import plotly.graph_objects as go

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"


@dataclass(frozen=True)
class Theme:
    """Colours that depend on the background; phase colours are readable on both."""

    ink: str
    muted: str
    grid: str
    surface: str
    accent: str
    good: str
    bad: str
    band: str


LIGHT = Theme(
    ink="#1f2933",
    muted="#5d6b7a",
    grid="#e6eaf0",
    surface="#ffffff",
    accent="#2563a8",
    good="#2c7a55",
    bad="#b3382c",
    band="rgba(93, 107, 122, 0.14)",
)
DARK = Theme(
    ink="#e4e9ef",
    muted="#9aa7b5",
    grid="#2b343f",
    surface="#171d24",
    accent="#6fb1f0",
    good="#5fbf92",
    bad="#f08a7c",
    band="rgba(154, 167, 181, 0.18)",
)


def theme_of(name: str | None) -> Theme:
    """DARK for "dark", LIGHT for anything else."""
    return DARK if name == "dark" else LIGHT


def plain(text: object) -> str:
    """Text for a label or hover: plotly reads a small HTML there, so markup is escaped."""
    return html.escape(str(text), quote=False)


def pattern_of(shape: str, colour: str, theme: Theme) -> dict[str, object]:
    """The pattern of a bar, which tells it from others where colours do not."""
    return {"shape": shape, "size": 5, "fgcolor": theme.surface, "bgcolor": colour}


def empty_figure(theme: Theme, height: int) -> go.Figure:
    """A figure without data in the page's fonts and colours, ready for traces."""
    figure = go.Figure()
    figure.update_layout(
        template="none",
        height=height,
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"family": FONT, "size": 12, "color": theme.ink},
        hoverlabel={
            "bgcolor": theme.surface,
            "bordercolor": theme.muted,
            "font": {"family": FONT, "size": 12, "color": theme.ink},
            "align": "left",
            "namelength": 0,
        },
        legend={
            "orientation": "h",
            "x": 0,
            "y": 1.0,
            "yanchor": "bottom",
            "itemsizing": "constant",
        },
        margin={"l": 60, "r": 40, "t": 36, "b": 56},
        hovermode="closest",
        # Upright in the right margin, so that it never covers the legend.
        modebar={
            "orientation": "v",
            "bgcolor": "rgba(0,0,0,0)",
            "color": theme.muted,
            "activecolor": theme.accent,
        },
    )
    axis = {"gridcolor": theme.grid, "zeroline": False, "linecolor": theme.grid, "automargin": True}
    figure.update_xaxes(title_standoff=10, **axis)
    figure.update_yaxes(**axis)
    return figure


def add_band(figure: go.Figure, ends: tuple[float, float], name: str, theme: Theme) -> None:
    """Shade what lies between two values of the y axis; the legend says what it is."""
    figure.add_hrect(y0=ends[0], y1=ends[1], fillcolor=theme.band, line_width=0)
    figure.add_trace(
        go.Scatter(
            name=name,
            mode="markers",
            x=[None],
            y=[None],
            marker={"symbol": "square", "size": 12, "color": theme.band},
        )
    )
