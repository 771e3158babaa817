"""One HTML file that shows a trace: findings, steps, metrics. It loads nothing.

Names in a trace come from anybody: everything that is not written here is escaped.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from html import escape
from typing import Any

import numpy as np
import pandas as pd

from hvdtune.plural import capitalized, counted, sized
from hvdtune.timeline.analysis import arrivals
from hvdtune.timeline.analysis.arrivals import Arrivals, arrivals_of
from hvdtune.timeline.analysis.compare import TITLES
from hvdtune.timeline.analysis.findings import Answer, TraceFinding
from hvdtune.timeline.analysis.headings import headings
from hvdtune.timeline.analysis.metrics import METRICS, bandwidth, breakdown, stragglers, tensors
from hvdtune.timeline.analysis.recorded import says_of
from hvdtune.timeline.analysis.steps import found_steps
from hvdtune.timeline.model.trace import Trace
from hvdtune.timeline.reading.clock import clock_table

MOST_ROWS = 50  # of a table; the rest is counted
MOST_STEPS = 400  # drawn one by one; of more, means of neighbours
_NO_WAITS = "When ranks wait is not recorded."
_OF_STEPS = ("efficiency", "overlap", "stragglers", "critical_path")

# Okabe and Ito's colours, which people with any colour vision can tell apart.
COLORS = {
    "compute_ms": "#0072b2",
    "off_processor_ms": "#8a8a8a",
    "input_ms": "#e69f00",
    "gc_ms": "#cc79a7",
    "checkpoint_ms": "#b8a1d9",
    "no_processor_ms": "#d55e00",
    "gpu_idle_ms": "#cccccc",
    "wait_ms": "#f0e442",
    "negotiate_ms": "#56b4e9",
    "exposed_ms": "#009e73",
}
_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem;
  color: #1a1a1a; background: #fff; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: .6rem 0; }
th, td { text-align: right; padding: .15rem .6rem; border-bottom: 1px solid #ddd; }
th:first-child, td:first-child { text-align: left; }
.scroll { overflow-x: auto; }
.finding { border-left: 4px solid #d55e00; padding: .1rem 1rem; margin: 1rem 0; }
.key span { white-space: nowrap; margin-right: 1rem; }
.key i { display: inline-block; width: .8rem; height: .8rem; margin-right: .3rem; }
svg { width: 100%; height: auto; background: #fafafa; }
"""


@dataclass(frozen=True)
class MetricTable:
    """What a metric says about a trace.

    Attributes:
        headings_of: whose words its columns have, see `headings.headings`; "": its own.
    """

    title: str
    table: pd.DataFrame
    summary: str
    headings_of: str = ""


def measure(trace: Trace) -> dict[str, MetricTable]:
    """Every metric of `metrics.METRICS`, in its order."""
    known = arrivals_of(trace)
    told = _of_steps(trace) if known is None else _of_arrivals(trace, known)
    told["tensors"] = _told(trace, "tensors", tensors.tensor_table(trace))
    return {
        name: told.get(name) or _told(trace, name, metric.table(trace.events))
        for name, metric in METRICS.items()
    }


def _told(trace: Trace, name: str, table: pd.DataFrame) -> MetricTable:
    """A metric's table, or why the trace cannot tell it."""
    metric = METRICS[name]
    if says := says_of(trace, name):
        return MetricTable(metric.TITLE, table.iloc[:0], says)
    if name == "tensors" and trace.meta.get("unnamed_tensors"):
        return MetricTable(metric.TITLE, table, tensors.UNNAMED)
    return MetricTable(metric.TITLE, table, metric.sentence(table))


def _of_steps(trace: Trace) -> dict[str, MetricTable]:
    """The metrics of steps, of a trace that marks them."""
    steady = breakdown.steady_steps(trace)
    told = {name: _told(trace, name, METRICS[name].table(steady)) for name in _OF_STEPS}
    late = stragglers.table(steady, of_streams=breakdown.is_only_of_streams(trace.events, steady))
    told["stragglers"] = _told(trace, "stragglers", late)
    told["breakdown"] = _marked_steps(trace, steady)
    return told


def _marked_steps(trace: Trace, steady: pd.DataFrame) -> MetricTable:
    steps = breakdown.apart_from_computing(breakdown.of_trace(trace))
    said = f"{breakdown.sentence(steady)}{_not_counted(steps, steady)}"
    return MetricTable(breakdown.TITLE, steps, said)


def _of_arrivals(trace: Trace, known: Arrivals) -> dict[str, MetricTable]:
    """The metrics of steps, of a trace that says when ranks announced and not when they waited."""
    told = {name: MetricTable(METRICS[name].TITLE, pd.DataFrame(), _NO_WAITS) for name in _OF_STEPS}
    late = arrivals.table(known)
    said = arrivals.sentence(known)
    told["stragglers"] = MetricTable(stragglers.TITLE, late, said, headings_of="arrivals")
    said = arrivals.sentence_of_steps(known)
    told["breakdown"] = MetricTable(breakdown.TITLE, found_steps(known), said)
    if known.has_marks:
        marked = _marked_steps(trace, breakdown.steady_steps(trace))
        told["breakdown"] = replace(marked, summary=f"{marked.summary} {said}")
    return told


def _not_counted(steps: pd.DataFrame, steady: pd.DataFrame) -> str:
    """Which of all steps means leave out; "": none."""
    shown, counted = (table["step"].nunique() for table in (steps, steady))
    if not counted or shown == counted:
        return ""
    return (
        f" All {shown:,} steps are shown; {shown - counted:,} are not in the mean: the first ones, "
        "in which caches fill, and those that not every rank has."
    )


def page(trace: Trace, answer: Answer, metrics: Mapping[str, MetricTable], title: str) -> str:
    """The whole file.

    Args:
        trace: as read.
        answer: see `findings.why`.
        metrics: see `measure`.
        title: what to call the trace.
    """
    body = [f"<h1>{escape(title)}</h1>", f"<p>{escape(answer.headline)}</p>"]
    body += [_finding(number, found) for number, found in enumerate(answer.findings, start=1)]
    body += [f"<p>{escape(capitalized(text))}.</p>" for text in answer.notes]
    body += [f"<p><strong>Warning:</strong> {escape(text)}</p>" for text in trace.warnings]
    body.append(_picture(metrics["breakdown"].table))
    for name, metric in metrics.items():
        body += [f"<h2>{escape(metric.title)}</h2>", f"<p>{escape(metric.summary)}</p>"]
        body.append(_table(metric.table, metric.headings_of or name))
    if clocks := trace.meta.get("clock"):
        body += [
            "<h2>Clocks</h2>",
            "<p>The offset was added to each rank's clock to match that of rank 0.</p>",
        ]
        body.append(_table(clock_table(clocks)))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>\n"
        + "\n".join(body)
        + "\n</body></html>\n"
    )


def _finding(number: int, found: TraceFinding) -> str:
    cost = found.cost
    seen = "".join(f"<li>{escape(capitalized(text))}</li>" for text in found.evidence)
    costs = (
        f"<strong>{cost.mean:.2f} ms per step</strong> [{cost.low:.2f}, {cost.high:.2f}], "
        f"{cost.percent:.1f} %"
        if cost.is_known
        else f"<strong>{found.why_no_cost}</strong>"
    )
    return (
        f'<div class="finding"><h3>{number}. {escape(capitalized(found.summary))}</h3>'
        f"<p>{costs}; confidence: {found.confidence}; kind: {escape(found.kind)}</p>"
        f"<ul>{seen}</ul><p><strong>Do:</strong> {escape(capitalized(found.remedy))}.</p></div>"
    )


def _readable(table: pd.DataFrame) -> pd.DataFrame:
    """A table with times in ms, and sizes and rates in units of which they are at least one."""
    shown = table.copy()
    for name in map(str, table.columns):
        if name.endswith("_ns"):
            shown[name] = table[name] / 1e6
        elif name == "part":
            shown[name] = [TITLES.get(part, part) for part in table[name]]
        elif name == "last_rank":
            shown[name] = ["not known" if rank < 0 else rank for rank in table[name]]
        elif name.startswith("gb_per_s"):
            shown[name] = [bandwidth.rated(rate) for rate in table[name]]
        elif name.startswith("bytes") or name.endswith("bytes"):
            shown[name] = ["" if np.isnan(size) else sized(size) for size in table[name]]
    return shown.rename(columns=lambda name: re.sub("_ns$", "_ms", str(name)))


def _table(table: pd.DataFrame, metric: str = "") -> str:
    if table.empty:
        return ""
    table = _readable(table)
    titles = headings(table.columns, metric)
    unknown = [name for name in titles if table[name].isna().all()]
    table = table.drop(columns=unknown)
    head = "".join(f"<th>{escape(titles[str(name)])}</th>" for name in table)
    rows = [
        "<tr>" + "".join(f"<td>{escape(_cell(value))}</td>" for value in row) + "</tr>"
        for row in table.head(MOST_ROWS).itertuples(index=False)
    ]
    left = len(table) - len(rows)
    more = f"<p>{counted(left, 'more row')}.</p>" if left > 0 else ""
    if unknown:
        more += f"<p>Not known: {escape(', '.join(titles[name] for name in unknown))}.</p>"
    return f'<div class="scroll"><table><tr>{head}</tr>' + "".join(rows) + f"</table></div>{more}"


def _cell(value: Any) -> str:
    if isinstance(value, float):  # NumPy's are, too
        if np.isnan(value):
            return "not known"
        return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:,.3f}"
    return str(value)


def _picture(steps: pd.DataFrame) -> str:
    """Stacked parts of each step, a strip per rank."""
    if steps.empty or steps["compute_ms"].isna().all():
        return ""
    key = " ".join(
        f'<span><i style="background:{color}"></i>{escape(TITLES[part.removesuffix("_ms")])}</span>'
        for part, color in COLORS.items()
        if (steps[part] > 0).any()
    )
    top = float(steps["step_ms"].quantile(0.99)) or 1.0
    strips = "".join(
        f"<h3>Rank {int(rank)}</h3>" + _strip(own, top)  # type: ignore[arg-type]
        for rank, own in steps.groupby("rank")
    )
    return f'<h2>Steps</h2><p class="key">{key}</p><p>Full height: {top:.2f} ms.</p>{strips}'


def _strip(own: pd.DataFrame, top: float) -> str:
    parts = own[list(COLORS)].fillna(0.0).to_numpy(np.float64)
    groups = [group.mean(axis=0) for group in np.array_split(parts, min(len(parts), MOST_STEPS))]
    heights = np.minimum(np.cumsum(groups, axis=1) / top, 1.0) * 100
    width = 1000 / len(heights)
    shapes = []
    for index, (color, upper) in enumerate(zip(COLORS.values(), heights.T, strict=True)):
        lower = heights[:, index - 1] if index else np.zeros(len(heights))
        bars = "".join(
            f"M{k * width:.1f} {100 - high:.2f}h{width:.2f}V{100 - low:.2f}h-{width:.2f}z"
            for k, (low, high) in enumerate(zip(lower, upper, strict=True))
            if high - low > 0.05
        )
        if bars:
            shapes.append(f'<path fill="{color}" d="{bars}"/>')
    return f'<svg viewBox="0 0 1000 100" preserveAspectRatio="none">{"".join(shapes)}</svg>'
