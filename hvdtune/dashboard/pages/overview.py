"""The overview: what costs time, what to do, and what the run is, on one screen."""

import math
from collections.abc import Sequence
from typing import Any

import dash_mantine_components as dmc
from dash import html
from dash.development.base_component import Component

from hvdtune.dashboard.blocks import (
    card,
    cards,
    defined,
    figure,
    grid,
    note,
    number_columns,
    quantity,
    section,
    sentences,
    spoken,
)
from hvdtune.dashboard.data import RunView, hosts_of
from hvdtune.dashboard.evidence import evidence_of
from hvdtune.dashboard.pages.finding_words import costs, sure
from hvdtune.dashboard.shell import PageAddress, link
from hvdtune.dashboard.study import setting_text
from hvdtune.plural import capitalized, counted, sized
from hvdtune.timeline.analysis.findings import Answer, TraceFinding
from hvdtune.timeline.analysis.metrics import (
    bandwidth,
    breakdown,
    efficiency,
    fusion,
    gpu,
    stragglers,
)
from hvdtune.timeline.analysis.recorded import is_recorded, says_of
from hvdtune.timeline.model.schema import COLLECTIVES, WAITS

PATH, TITLE = "/", "Overview"

_COLORS = {"high": "red", "medium": "orange", "low": "yellow"}
_GPU_HEADERS = {
    "rank": "Rank",
    "idle_percent": "Idle (%)",
    "kernels_percent": "Computes (%)",
    "communication_percent": "NCCL runs (%)",
    "alone_percent": "NCCL runs alone (%)",
    "copies_percent": "Copies (%)",
    "window_ms": "Time examined (ms)",
}
_KERNEL_HEADERS = {
    "kernel": "Kernel",
    "count": "Count",
    "total_ms": "Total (ms)",
    "median_ms": "Median (ms)",
    "percent": "% of all kernels and copies",
}
_NO_SUM = (
    "The costs of several findings do not add up: each is the gain from removing this cause alone."
)
_PAGES = {
    "tiny-buckets": "/fusion",
    "small-ddp-buckets": "/tensors",
    "long-cycle": "/fusion",
    "cold-cache": "/fusion",
    "copy-bound": "/fusion",
    "different-order": "/tensors",
    "huge-late-tensor": "/tensors",
    "late-rank": "/ranks",
}


def layout(run: RunView, place: PageAddress) -> list[Component]:
    return [
        html.H1(TITLE),
        _verdict(run, place),
        _findings(run, place),
        _gpus(run),
        _about(run),
        section(
            "Where the time of a step goes",
            defined("share", breakdown.sentence(run.steps)),
            figure(
                "breakdown", place.run, "Stacked bars, one per rank: the parts of a step in ms", 300
            ),
        )
        if len(run.steps) and not _has_only_steps(run) and not run.steps_are_found
        else html.Span(),
        _ranks(run, place),
        _efficiency(run),
        section("Bus bandwidth", note(says_of(run.trace, "bandwidth") or _bandwidth(run))),
        sentences("About this trace", run.trace.warnings) or html.Span(),
    ]


# What a trace of a job that communicates has.
_COMMUNICATION = ("BUCKET", *WAITS, *COLLECTIVES)


def _has_only_steps(run: RunView) -> bool:
    """Whether nothing tells what a step is made of."""
    return set(run.trace.events["kind"].unique()) == {"STEP"}


def _gpus(run: RunView) -> Component:
    found = gpu.table(run.trace, run.steps)
    if found.empty:
        return html.Span()
    kernels = gpu.kernels(run.trace)
    return section(
        "GPUs",
        note(gpu.sentence(found)),
        html.P(
            "Shares refer to the selected steps, or to the whole recording if no steps are "
            "marked. If several streams are active at the same time, that time counts once.",
            className="hint",
        ),
        grid("gpu-table", number_columns(found, _GPU_HEADERS), found),
        html.H3("Kernels and copies that take most"),
        grid("kernel-table", number_columns(kernels, _KERNEL_HEADERS), kernels),
    )


def _bandwidth(run: RunView) -> str:
    table = bandwidth.table(run.trace.events)
    sentence = bandwidth.sentence(table, run.link_gbps)
    return (
        sentence
        if run.link_gbps or table.empty
        else f"{sentence} Give --link-gbps to compare it with the limit."
    )


def _verdict(run: RunView, place: PageAddress) -> Component:
    answer = run.answer
    if answer.verdict == "incomplete":
        texts = [
            *(html.P(f"{capitalized(text)}.") for text in answer.missing),
            *_notes(answer),
        ]
        if not gpu.table(run.trace, run.steps).empty:
            texts.append(html.P("GPU activity is shown below."))
        return _alert("Incomplete: this trace does not show why the job is slow", texts, "gray")
    scope = answer.scope or (
        f"{counted(answer.steps, 'step')} of {answer.step_ms:.2f} ms (mean), "
        f"{counted(len(answer.ranks), 'rank')}"
    )
    if not answer.findings:
        what = html.P(f"{scope}." if answer.scope else f"The trace has {scope}.")
        if answer.verdict == "unexplained":
            why = html.P(f"{capitalized(answer.unexplained)}.")
            return _alert("Not explained", [why, what, *_notes(answer)], "gray")
        return _alert("No bottleneck found", [what, *_notes(answer)], "green")
    worst = answer.findings[0]
    words = f"{costs(worst)}; {sure(worst)}; from {scope}. "
    texts = [
        html.P([html.Strong("Remedy: "), capitalized(worst.remedy)]),
        html.P([words, _show(run, place, worst)]),
    ]
    return _alert(capitalized(worst.summary), texts, _COLORS[worst.confidence])


def _alert(title: str, texts: Sequence[Component], color: str) -> Component:
    alert: Component = dmc.Alert(list(texts), title=title, color=color, id="verdict")
    return alert


def _show(run: RunView, place: PageAddress, found: TraceFinding) -> Component:
    """Link to where it shows: a typical step that shows it, or the page about it."""
    if found.kind in _PAGES:
        return html.A("Show me", href=link(_PAGES[found.kind], place.run))
    shown = evidence_of(run, found)
    if shown is None:
        return html.A("Show the timeline", href=link("/timeline", place.run))
    margin = (shown.last_ns - shown.first_ns) // 10
    more: dict[str, Any] = {"from": shown.first_ns - margin, "to": shown.last_ns + margin}
    more |= {"finding": found.kind, "step": shown.step}
    return html.A(f"Show me in step {shown.step}", href=link("/timeline", place.run, **more))


def _cell(label: str, text: str, **more: Any) -> Component:
    """A cell that bears its column's name where the page is too narrow for columns."""
    about: Any = {"data-label": label}
    return html.Td(text, **about, **more)


def _number(value: float, digits: int) -> str:
    return "-" if math.isnan(value) else f"{value:.{digits}f}"


def _findings(run: RunView, place: PageAddress) -> Component:
    rows = [
        html.Tr(
            [
                html.Td(str(number)),
                html.Td(
                    [
                        html.Strong(capitalized(found.summary)),
                        html.Ul([html.Li(capitalized(text)) for text in found.evidence]),
                    ]
                ),
                _cell("ms per step", _number(found.cost.mean, 2), className="number"),
                _cell("% of a step", _number(found.cost.percent, 1), className="number"),
                _cell("Confidence", found.confidence),
                _cell("Remedy", capitalized(found.remedy)),
                html.Td(_show(run, place, found)),
            ]
        )
        for number, found in enumerate(run.answer.findings, start=1)
    ]
    if not rows:
        return html.Span()
    heads = ("", "Finding", "ms per step", "% of a step", "Confidence", "Remedy", "Where")
    table = dmc.Table(
        [
            html.Thead(html.Tr([html.Th(text, scope="col") for text in heads])),
            html.Tbody(rows),
        ],
        className="findings",
    )
    return section(
        "Findings",
        html.Div(table, className="scroll"),
        *([html.P(_NO_SUM, className="hint")] if len(rows) > 1 else []),
        *_notes(run.answer),
        name="findings",
    )


def _notes(answer: Answer) -> list[Component]:
    return [html.P(f"{capitalized(text)}.", className="hint") for text in answer.notes]


def _about(run: RunView) -> Component:
    hosts, job = hosts_of(run.trace), run.job
    in_buckets = fusion.bytes_per_step(run.trace.events, run.steps)
    of_buckets = "" if math.isnan(in_buckets) else f"{sized(in_buckets)} per step in buckets"
    found = [
        _rank_card(run, hosts),
        *_step_cards(run),
        quantity("tensors", run.counts["tensors"], of_buckets or "in all collectives"),
        quantity("slices", run.counts["slices"], "all that the trace holds"),
        _clock_card(run),
    ]
    setting = [
        dmc.Badge(setting_text(knob, value), variant="light", color="gray", tt="none")
        for knob, value in sorted(job.setting.items())
    ]
    return section(
        "The run",
        cards(found),
        html.Div(setting or "The trace does not record the setting.", className="setting"),
        html.P(f"Hosts: {', '.join(hosts[:8])}" if hosts else "", className="hint"),
    )


def _rank_card(run: RunView, hosts: Sequence[str]) -> Component:
    if not run.trace.slice_count:
        return card("Ranks", "none", "the trace holds no slices")
    if not _names_ranks(run):
        return card("Ranks", "not known", "the trace does not record ranks")
    size = max(run.job.size, *(rank + 1 for rank in run.ranks))
    where = f"on {len(hosts)} hosts" if len(hosts) > 1 else "on one host"
    # Only hvdtune records how many there were; of others there may be more than are seen.
    count = f"{len(run.ranks)} of {size}"
    if run.job.size != size:
        least = f"at least {size}"
        count = least if len(run.ranks) == size else f"{len(run.ranks)} of {least}"
    return card("Ranks", count, where if hosts else "host not recorded")


def _names_ranks(run: RunView) -> bool:
    """Whether the trace tells ranks apart, or is of one and says which."""
    return bool(run.trace.meta.get("ranks")) or not run.trace.events.empty


def _step_cards(run: RunView) -> list[Component]:
    values = run.quantities
    if run.steps_are_found and len(run.steps):
        found = counted(len(run.steps), "step")
        how = f"mean; {found} found from the recurrence of tensors"
        return [quantity("step-time", values["step-time"], how)]
    if run.steps.empty:
        return [quantity("step-time", values["step-time"], "the trace marks no steps")]
    each, ranks = run.steps["step_ms"], run.steps["rank"].nunique()
    spread = (
        f"mean; 5 to 95 %: {each.quantile(0.05):,.2f} to {each.quantile(0.95):,.2f} ms, "
        f"{counted(run.steps['step'].nunique(), 'step')} of {counted(ranks, 'rank')}"
    )
    shown = ["lost-processor-time"]
    communicates = run.trace.events["kind"].isin(_COMMUNICATION).any()
    if communicates or not is_recorded(run.trace, "waits"):
        shown[:0] = ["exposed", "communicating"]
        if max(len(run.ranks), run.job.size) > 1:  # a single one has nobody to wait for
            shown.insert(0, "waiting-for-ranks")
    return [
        quantity("step-time", values["step-time"], spread),
        *(quantity(key, values[key], ranks=ranks) for key in shown),
    ]


def _clock_card(run: RunView) -> Component:
    fits = run.trace.meta.get("clock", {}).values()
    residuals = [float(fit["residual_us"]) for fit in fits if fit.get("samples")]
    if residuals and len(hosts_of(run.trace)) == 1:
        return card("Clocks", "the same", "all ranks are on one host and share its clock")
    if residuals:
        return card("Clocks agree to", f"{max(residuals):,.1f} us", "the largest residual of ranks")
    if not (run.trace.slice_count and _names_ranks(run)):
        return card("Clocks", "not known", "the trace does not record ranks")
    if len(run.ranks) < 2:
        return card("Clocks", "one", "the clock of the only rank; no alignment needed")
    if {file.format for file in run.trace.files} == {"horovod"}:
        return card("Clocks", "one", "the clock of rank 0, which wrote the timeline")
    if _share_a_host(run):
        return card("Clocks", "the same", "all ranks name the same host and share its clock")
    return card("Clocks", "not aligned", "offsets were not measured")


def _share_a_host(run: RunView) -> bool:
    """Whether all ranks name one host, and their times are by its time of day."""
    hosts = {run.job.hosts.get(rank, "") for rank in run.ranks}
    return len(hosts) == 1 and "" not in hosts and run.trace.origin_unix_ns is not None


def _ranks(run: RunView, place: PageAddress) -> Component:
    if run.steps["rank"].nunique() < 2:
        return html.Span()
    return section(
        "Ranks",
        *_busy_times(run, place),
        html.A("Open Ranks", href=link("/ranks", place.run)),
    )


def _busy_times(run: RunView, place: PageAddress) -> list[Component]:
    if lacking := says_of(run.trace, "stragglers"):
        return [note(lacking)]
    return [
        defined("rank-cost", stragglers.sentence(run.late_ranks)),
        figure("busy_times", place.run, "Bars: busy time of a step for each rank, in ms", 220),
    ]


def _efficiency(run: RunView) -> Component:
    if run.steps_are_found:
        return html.Span()
    if len(run.steps) and (lacking := says_of(run.trace, "efficiency")):
        return section("Efficiency", note(lacking))
    table = efficiency.table(run.steps)
    if table.empty or _has_only_steps(run):
        return html.Span()
    columns = (table[key] for key in ("factor", "percent", "meaning"))
    factors = zip(("", "= ", "x ", "x "), *columns, strict=True)
    rows = [
        _factor(sign + str(name), float(value), sentence) for sign, name, value, sentence in factors
    ]
    steps = int(table["steps"].iloc[0])
    return section(
        "Efficiency",
        note(f"{efficiency.sentence(table)} Steps measured: {steps:,}."),
        html.Table(html.Tbody(rows), className="efficiency"),
    )


def _factor(name: str, percent: float, meaning: str) -> Component:
    bar = dmc.Progress(value=percent, **spoken(f"{name} in percent"))
    return html.Tr(
        [
            html.Th([name, html.Div(f"{capitalized(meaning)}.", className="hint")], scope="row"),
            html.Td(f"{percent:.1f} %", className="number"),
            html.Td(bar, className="bar"),
        ]
    )
