"""The tables of `hvdtune timeline stats`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from hvdtune.cli.messages import visible, warning
from hvdtune.plural import counted

if TYPE_CHECKING:
    from hvdtune.timeline.analysis.overview import Overview

_ROWS: Final = 20


def print_stats(found: Overview) -> None:
    """Tables on stdout, warnings on stderr."""
    # Without styles: of control characters only those of names would be left, which are shown.
    console = Console(highlight=False, soft_wrap=True, color_system=None)
    duration_ms = found.duration_ms()
    for file in found.files:
        formats = ", ".join(file.formats)
        # Names from traces are text: never markup.
        title = file.path if file.count == 1 else f"{file.path} ({counted(file.count, 'file')})"
        console.print(Text(f"{title}: {formats}, {counted(file.statistics.slices, 'slice')}"))
    if duration_ms is None:
        duration = "The trace holds no slices, so its duration is unknown."
    else:
        duration = f"{duration_ms:,.3f} ms from the first to the last event\n"
    console.print(duration)
    if found.counts():
        console.print(_events(found))
    if duration_ms is not None:
        if found.kinds():
            console.print(_kinds(found, duration_ms))
        console.print(_names(found))
        console.print(_threads(found, duration_ms))
    for text in found.warnings():
        warning(text)


def _table(title: str, *columns: str) -> Table:
    table = Table(title=Text(title), title_justify="left", box=None, pad_edge=False)
    for column in columns:
        number = column.endswith(("ms", "%")) or column in _NUMBERS
        table.add_column(column, justify="right" if number else "left")
    return table


_NUMBERS: Final = {"rank", "events", "shown", "reported", "slices"}


def _events(found: Overview) -> Table:
    table = _table("Events in the files", "phase", "events", "shown", "reported")
    for phase, numbers in found.counts().items():
        row = (f"{numbers[key]:,}" for key in ("read", "shown", "reported"))
        table.add_row(_cell(phase), *row)
    return table


def _kinds(found: Overview, duration_ms: float) -> Table:
    title = "Time that slices of each kind cover; kinds overlap one another"
    table = _table(title, "rank", "kind", "slices", "ms", "%")
    for row in found.kinds():
        rank = str(row.rank) if row.rank >= 0 else "?"
        table.add_row(rank, row.kind, f"{row.count:,}", f"{row.busy_ms:,.3f}",
                      _share(row.busy_ms, duration_ms))  # fmt: skip
    return table


def _names(found: Overview) -> Table:
    title = "Names with the largest sums; overlapping slices are each counted in full"
    table = _table(title, "name", "slices", "sum ms", "mean ms", "longest ms")
    rows = found.names()
    for row in rows[:_ROWS]:
        table.add_row(_cell(row.name), f"{row.count:,}", f"{row.total_ms:,.3f}",
                      f"{row.total_ms / row.count:,.3f}", f"{row.longest_ms:,.3f}")  # fmt: skip
    if len(rows) > _ROWS:
        table.caption = Text(f"and {len(rows) - _ROWS} more names with --json")
    return table


def _threads(found: Overview, duration_ms: float) -> Table:
    table = _table("Threads", "rank", "process", "thread", "slices", "busy ms", "%")
    rows = [row for file in found.files for row in file.statistics.threads]
    rows.sort(key=lambda row: -row.busy_ms)
    for row in rows[:_ROWS]:
        rank = str(row.rank) if row.rank >= 0 else "?"
        table.add_row(rank, _cell(row.process), _cell(row.thread), f"{row.count:,}",
                      f"{row.busy_ms:,.3f}", _share(row.busy_ms, duration_ms))  # fmt: skip
    if len(rows) > _ROWS:
        table.caption = Text(f"and {len(rows) - _ROWS} more threads with --json")
    return table


def _cell(name: str) -> Text:
    # rich would drop some of them, and break lines at others.
    return Text(visible(name).replace("\n", "\\n").replace("\t", "\\t"))


def _share(ms: float, of_ms: float) -> str:
    return f"{100 * ms / of_ms:.1f}" if of_ms else ""
