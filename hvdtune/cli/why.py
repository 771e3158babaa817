"""`hvdtune timeline why`, `diff` and `report`: analyses of a trace."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hvdtune.cli.handover import WorkbenchCommand
from hvdtune.cli.messages import warning
from hvdtune.cli.parameters import Number, command, explained, json_option
from hvdtune.errors import HvdtuneError
from hvdtune.workflows.traces import existing, load_trace, refuse_overwriting

if TYPE_CHECKING:
    import pandas as pd

    from hvdtune.timeline.analysis.findings import Answer

EXIT_INCOMPLETE = 5  # 3 and 4 are those of verdicts
EXIT_UNEXPLAINED = 6

_traces = explained(
    "paths",
    nargs=-1,
    required=True,
    type=Path,
    metavar="TRACE...",
    help="A trace, the traces of all ranks, or their folder.",
)
_link = click.option(
    "--link-gbps", type=Number(0.001), help="Bandwidth of a link between hosts, in Gbit/s."
)


@command(cls=WorkbenchCommand)
@_traces
@_link
@json_option
def why(paths: tuple[Path, ...], *, link_gbps: float | None, as_json: bool) -> int:
    """Find the causes of slow steps: at most five, with cost, evidence and remedy.

    The exit code is 5 if the trace lacks evidence, and 6 if nothing was found and less than 80 % of
    a step is explained.
    """
    from hvdtune.timeline.analysis.findings import why as ask
    from hvdtune.timeline.model.job_metadata import job_metadata_of

    trace = load_trace(paths)
    answer = ask(trace, job_metadata_of(trace, link_gbps))
    if as_json:
        print_json(answer.document() | {"warnings": trace.warnings})
    else:
        for text in trace.warnings:
            warning(text)
        for line in render(answer):
            print(line)
    return {"incomplete": EXIT_INCOMPLETE, "unexplained": EXIT_UNEXPLAINED}.get(answer.verdict, 0)


@command(cls=WorkbenchCommand)
@explained("first", type=Path, metavar="A", help="A trace, or a folder of ranks' traces.")
@explained("second", type=Path, metavar="B", help="The trace to compare with A.")
@json_option
def diff(first: Path, second: Path, *, as_json: bool) -> int:
    """Compare two traces of the same training; each difference has a 95 % interval.

    The exit code is 5 if a trace has too few steps.
    """
    from hvdtune.timeline.analysis import compare
    from hvdtune.timeline.analysis.metrics import breakdown
    from hvdtune.timeline.analysis.steps import steps_of

    traces = [load_trace([path]) for path in (first, second)]
    left, right = (steps_of(trace) for trace in traces)
    table = compare.of_steps(left, right)
    says = compare.sentence(table, {str(first): left, str(second): right})
    notes = {
        breakdown.note_of_unseen_gpus(trace.events, steps)
        for trace, steps in zip(traces, (left, right), strict=True)
    }
    warnings = [text for trace in traces for text in trace.warnings]
    warnings += sorted(notes - {""})
    if as_json:
        print_json({"says": says, "rows": records(table), "warnings": warnings})
        return EXIT_INCOMPLETE if table.empty else 0
    for text in warnings:
        warning(text)
    print(says)
    if table.empty:
        return EXIT_INCOMPLETE
    names = {"quantity": "", "a_ms": "A (ms)", "b_ms": "B (ms)", "change_ms": "change (ms)"}
    names |= {"interval_ms": "95 % interval", "percent": "change (%)"}
    rows = compare.shown(table)
    rows["percent"] = [
        "-" if math.isnan(percent) else compare.relative(percent) for percent in rows["percent"]
    ]
    rows = rows.rename(columns=names)
    print(rows.to_string(index=False, na_rep="-", float_format=lambda value: f"{value:.2f}"))
    return 0


@command(cls=WorkbenchCommand)
@_traces
@click.option(
    "--output", "-o", type=Path, help="The page to write. [default: the trace's name with .html]"
)
@_link
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print the page's content as JSON and write no page.",
)
def report(
    paths: tuple[Path, ...], *, output: Path | None, link_gbps: float | None, as_json: bool
) -> int:
    """Write findings, metrics and a picture of the steps as one HTML file that needs no network."""
    from hvdtune.timeline.analysis.findings import why as ask
    from hvdtune.timeline.analysis.report import measure, page
    from hvdtune.timeline.model.job_metadata import job_metadata_of

    target = output or _beside(existing(paths)[0])
    if not as_json:
        refuse_overwriting(target, paths)
    trace = load_trace(paths)
    answer = ask(trace, job_metadata_of(trace, link_gbps))
    metrics = measure(trace)
    if as_json:
        shown = {
            key: {"says": metric.summary, "rows": records(metric.table)}
            for key, metric in metrics.items()
        }
        print_json(answer.document() | {"metrics": shown, "warnings": trace.warnings})
        return 0
    try:
        target.write_text(page(trace, answer, metrics, title=paths[0].name), encoding="utf-8")
    except OSError as error:
        raise HvdtuneError(f"cannot write the report {target}: {error.strerror}") from None
    print(target)
    return 0


def _beside(path: Path) -> Path:
    # "." and ".." are not names of files.
    named = path.resolve() if path.name in ("", "..") else path
    return named.with_name((named.name.split(".")[0] or "report") + ".html")


def render(answer: Answer) -> list[str]:
    """Return lines for a terminal."""
    lines = [answer.headline]
    for number, finding in enumerate(answer.findings, start=1):
        cost = finding.cost
        costs = (
            f"{cost.mean:.2f} ms per step [{cost.low:.2f}, {cost.high:.2f}], {cost.percent:.1f} %"
            if cost.is_known
            else finding.why_no_cost
        )
        lines += [
            "",
            f"{number}. {finding.summary} ({finding.kind})",
            f"   costs  {costs}; confidence: {finding.confidence}",
            *(f"   seen   {text}" for text in finding.evidence),
            f"   do     {finding.remedy}",
        ]
    return lines + [f"note: {text}" for text in answer.notes]


def records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return rows for JSON, which has no NaN."""
    rows = table.astype(object).to_dict("records")
    return [{str(key): _plain(value) for key, value in row.items()} for row in rows]


def _plain(value: Any) -> Any:
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def print_json(document: dict[str, Any]) -> None:
    print(json.dumps(document, allow_nan=False))
