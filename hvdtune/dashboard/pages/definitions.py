"""Definitions: what each number on the other pages is."""

from dash import html
from dash.development.base_component import Component

from hvdtune.dashboard.blocks import section
from hvdtune.dashboard.data import RunView
from hvdtune.dashboard.shell import PageAddress
from hvdtune.timeline.analysis.quantities import QUANTITIES

PATH, TITLE = "/definitions", "Definitions"


def layout(run: RunView, place: PageAddress) -> list[Component]:
    del run, place
    return [
        html.H1(TITLE),
        section(
            "What numbers mean",
            html.P(
                "Every number about steps and every count about a trace has one definition, on "
                "every page and in every command. A quantity that the trace does not record is "
                '"not known", not 0.',
                className="hint",
            ),
            html.Dl(
                [
                    part
                    for key, each in QUANTITIES.items()
                    for part in (
                        html.Dt([html.Strong(each.title), f" ({each.unit})"], id=key),
                        html.Dd(each.definition),
                    )
                ],
                className="definitions",
            ),
        ),
    ]
