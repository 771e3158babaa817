"""What surrounds every page: the head with the choice of a run, the way to the other pages."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlencode

import dash_mantine_components as dmc
from dash import dcc, html
from dash.development.base_component import Component

from hvdtune.dashboard.blocks import failure, rooted, spoken
from hvdtune.dashboard.runs import Runs

MOST_VALUES = 1_000  # that an address says
# Figures that are drawn later do not hide the page.
_ONLY_PAGES: dict[str, Any] = {"target_components": {"content": "children"}}


@dataclass(frozen=True)
class PageAddress:
    """Where somebody is: a run and what the address says more.

    Attributes:
        run: its number; the first where the address has none.
        missing: what the address says instead of the number of a run; "" where it does not.
        query: the address's values by name.
    """

    run: int
    query: Mapping[str, Sequence[str]]
    missing: str = ""

    @classmethod
    def of(cls, search: str | None, runs: int) -> "PageAddress":
        """Parse the part of an address behind its question mark."""
        query = parse_qs((search or "").removeprefix("?"), max_num_fields=MOST_VALUES)
        text = query.get("run", ["0"])[0]
        known = text.isascii() and text.isdigit() and len(text) < 6 and int(text) < runs
        return cls(int(text), query) if known else cls(0, query, text[:40])

    def whole(self, name: str) -> int | None:
        """A number of the address, if it has it and it is one."""
        text = self.query.get(name, [""])[0]
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) < 19):
            return None
        return int(text)


def link(path: str, run: int, **values: Any) -> str:
    """The address of a page."""
    return f"{rooted(path)}?{urlencode({'run': run, **values}, doseq=True)}"


def shell(runs: Runs, pages: Mapping[str, str], prefix: str = "") -> Component:
    """The frame.

    Args:
        pages: path -> title, in the order in which they are offered.
        prefix: the path under which a proxy serves the pages.
    """
    frame: Component = dmc.MantineProvider(
        [
            dcc.Location(id="url", refresh="callback-nav"),
            dcc.Store(id="theme"),
            html.A("Skip to the page", href="#content", className="skip"),
            dmc.AppShell(
                [
                    dmc.AppShellHeader(_head(runs)),
                    dmc.AppShellNavbar(html.Nav(_links(pages, prefix), **spoken("Pages"))),
                    dmc.AppShellMain([*_troubles(), _content()]),
                ],
                header={"height": 52},
                navbar={"width": 168, "breakpoint": "sm", "collapsed": {"mobile": False}},
                padding="md",
            ),
        ],
        id="mantine",
        forceColorScheme="light",
    )
    return frame


def _content() -> Component:
    return dcc.Loading(
        html.Div(id="content", tabIndex=-1),
        type="default",
        delay_show=300,
        overlay_style={"visibility": "visible", "opacity": 0.5},
        **_ONLY_PAGES,
    )


def _troubles() -> list[Component]:
    """A message above the page on what is wrong: nothing, as long as nothing is."""
    unreachable = failure(
        "The dashboard does not respond. This page shows its last data.",
        "Is it still running? Start it again and open the link that it prints.",
    )
    return [html.Div(unreachable, id="unreachable", hidden=True), html.Div(id="failure")]


def _head(runs: Runs) -> Component:
    return html.Div(
        [
            html.Span("hvdtune", className="brand"),
            *_choice(runs),
            html.Button("Light / dark", id="theme-switch", className="quiet"),
        ],
        className="head",
    )


def _choice(runs: Runs) -> list[Component]:
    if len(runs) == 1:
        title = runs[0].title
        name = html.Code(html.Bdi(title), title=title, className="run-title")
        return [name, dcc.Store(id="run")]
    choice = dmc.Select(
        data=[{"label": run.title, "value": str(index)} for index, run in enumerate(runs)],
        value="0",
        id="run",
        allowDeselect=False,
        searchable=True,
        className="run-choice",
        **spoken("Run"),
    )
    return [choice]


def _links(pages: Mapping[str, str], prefix: str) -> list[Component]:
    return [
        dmc.NavLink(
            label=title, href=prefix + path, id={"type": "nav", "path": path}, active="exact"
        )
        for path, title in pages.items()
    ]
