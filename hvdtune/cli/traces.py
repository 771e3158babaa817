"""`hvdtune timeline`: records traces, and reads those of any format, files or folders."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from hvdtune.cli import why
from hvdtune.cli.dashboard import address_options, show
from hvdtune.cli.handover import WorkbenchGroup
from hvdtune.cli.messages import TerminalReporter, info, names_made_visible, warning
from hvdtune.cli.parameters import Number, WholeNumber, explained, group, json_option
from hvdtune.errors import HvdtuneError, UsageError
from hvdtune.plural import counted
from hvdtune.workflows.traces import existing, load_trace, refuse_overwriting

if TYPE_CHECKING:
    import pandas as pd

    from hvdtune.timeline import Trace

Format = Literal["chrome", "perfetto", "parquet", "csv", "horovod"]
_ENDINGS = {
    "chrome": ".json",
    "perfetto": ".json",
    "parquet": ".parquet",
    "csv": ".csv",
    "horovod": ".json",
}

_paths = explained(
    "paths",
    nargs=-1,
    required=True,
    type=Path,
    metavar="PATH...",
    help="Traces, plain or compressed (.gz, .bz2, .xz, .zst, .zip); folders of ranks' traces; run "
    "folders.",
)


@group(cls=WorkbenchGroup)
@click.pass_context
def timeline(context: click.Context) -> None:
    """Record traces and read them."""
    # A trace may come from others: its names must not steer the terminal.
    context.with_resource(names_made_visible())


@timeline.command()
@_paths
@json_option
def stats(paths: tuple[Path, ...], *, as_json: bool) -> int:
    """Show the contents of a trace by kind, name and thread, and its unreadable parts."""
    from hvdtune.cli.terminal.trace_tables import print_stats
    from hvdtune.timeline.analysis.overview import overview

    found = overview(existing(paths))
    if as_json:
        print(json.dumps(found.document()))
    else:
        print_stats(found)
    return 0


@timeline.command()
@_paths
@click.option(
    "--output", "-o", type=Path, required=True, help="The trace to write; .gz compresses it."
)
@json_option
def merge(paths: tuple[Path, ...], *, output: Path, as_json: bool) -> int:
    """Join the traces of several ranks into one, on one clock if their clocks are known."""
    return _write(paths, output, "chrome", as_json=as_json)


@timeline.command()
@_paths
@click.option(
    "--format", "kind", type=click.Choice([*_ENDINGS]), default="chrome", help="Format to write."
)
@click.option(
    "--output",
    "-o",
    type=Path,
    help="The file to write. [default: the first PATH's name with the format's ending]",
)
@click.option("--mark-cycles", is_flag=True, help="Mark the cycles, with --format horovod.")
@json_option
def export(
    paths: tuple[Path, ...], *, kind: Format, output: Path | None, mark_cycles: bool, as_json: bool
) -> int:
    """Write a trace for Perfetto and chrome://tracing, as a table, or in Horovod's format."""
    if mark_cycles and kind != "horovod":
        raise UsageError("--mark-cycles needs --format horovod")
    target = output or _beside(paths[0], kind)
    return _write(paths, target, kind, as_json=as_json, mark_cycles=mark_cycles)


@timeline.command()
@explained("sql", metavar="SQL", help="A query over the tables slices, events and steps.")
@_paths
@click.option(
    "--seconds",
    type=Number(0.001),
    default=30,
    help="Time limit of the query in seconds, without the time to open the trace.",
)
@click.option(
    "--memory-mb",
    type=WholeNumber(100, 1 << 24),
    default=4_000,
    help="Memory limit of the query in MB, without the memory of the trace.",
)
@json_option
def query(
    sql: str, paths: tuple[Path, ...], *, seconds: float, memory_mb: int, as_json: bool
) -> int:
    """Run a query in SQL on a trace with DuckDB (the extra `query`)."""
    from hvdtune.timeline.analysis.query import query as ask
    from hvdtune.timeline.analysis.query import without_rows
    from hvdtune.timeline.analysis.query_process import QueryLimits

    limits = QueryLimits(
        seconds,
        memory_mb=memory_mb,
        more_seconds="; --seconds allows more",
        more_memory="; --memory-mb allows more",
    )
    found = ask(load_trace(paths), sql, limits)
    if as_json:
        print(found.to_json(orient="records"))
    elif found.empty:
        print(without_rows(found))
    else:
        print(found.apply(_with_nulls).to_string(index=False, na_rep="NULL"))
    return 0


def _with_nulls(column: pd.Series) -> pd.Series:
    """Return a column that prints unknown values as NULL; numbers keep their format."""
    if column.dtype.kind == "f" or column.notna().all():
        return column
    return column.astype(object).where(column.notna(), "NULL")


timeline.add_command(why.why)
# Under this name, too, which the help leaves out.
_why_slow = copy.copy(why.why)
_why_slow.hidden = True
timeline.add_command(_why_slow, "why-slow")
timeline.add_command(why.diff)
timeline.add_command(why.report)


@timeline.command()
@explained(
    "paths", nargs=-1, required=True, type=Path, metavar="PATH...", help="Traces or run folders."
)
@address_options
def view(**given: Any) -> int:
    """Open the dashboard on traces or run folders."""
    return show(**given)


@timeline.command()
@explained(
    "job", metavar="PID|RUN", help="ID of a process of a running job, or the job's run folder."
)
@click.option("--steps", type=WholeNumber(1), help="Number of whole steps to record.")
@click.option("--seconds", type=Number(0.1), help="Seconds to record.")
@click.option("--output", "-o", type=Path, help="The trace to write. [default: trace-PID.json]")
@click.option(
    "--max-mb",
    type=Number(1),
    default=256,
    help="MiB of raw trace to keep per rank; the oldest is dropped.",
)
def record(
    job: str, *, steps: int | None, seconds: float | None, output: Path | None, max_mb: float
) -> int:
    """Record a trace of a running job, until Ctrl-C or for --steps or --seconds."""
    from hvdtune.workflows.record import record
    from hvdtune.workflows.requests import RecordRequest

    request = RecordRequest(steps, seconds, max_mb)
    trace = record(job, output, request, TerminalReporter())
    info(f"trace: {trace}")
    return 0


def _write(
    paths: tuple[Path, ...],
    target: Path,
    kind: Format,
    *,
    as_json: bool,
    mark_cycles: bool = False,
) -> int:
    from hvdtune.timeline import open_trace, write_slices
    from hvdtune.timeline.model.duplicate_ranks import refuse_two_files_of_a_rank
    from hvdtune.timeline.writing.export_horovod import can_write, left_out, write_horovod

    found = existing(paths)
    refuse_overwriting(target, found)
    trace = open_trace(found)
    refuse_two_files_of_a_rank(trace)
    if kind == "horovod" and not can_write(trace):
        raise UsageError(
            f"{paths[0]}: this trace has no collectives, and Horovod's format contains only these"
        )
    slices, gone = trace.slice_count, dict[str, int]()
    try:
        if kind == "horovod":
            written = write_horovod(trace, target, mark_cycles=mark_cycles)
            slices, gone = written.slices, left_out(trace, written)
        else:
            write_slices(trace, target, kind)
    except OSError as error:
        raise HvdtuneError(f"cannot write {target}: {error.strerror or error}") from None
    if as_json:
        print(json.dumps(_written(trace, target) | {"slices": slices, "left_out": gone}))
        return 0
    for text in trace.warnings:
        warning(text)
    ranks = counted(len(_ranks(trace)), "rank")
    info(f"{target}: {counted(slices, 'slice')} of {ranks}")
    if gone:
        info(_without(trace, gone, slices))
    return 0


def _without(trace: Trace, gone: dict[str, int], written: int) -> str:
    """Return a sentence about the slices that Horovod's format cannot contain."""
    count = sum(gone.values())
    kinds = ", ".join(f"{number:,} {kind}" for kind, number in gone.items())
    return (
        "Horovod's format contains only one rank's operations and the times at which the other "
        "ranks announced their tensors. "
        f"{count:,} of the trace's {counted(trace.slice_count, 'slice')} "
        f"{'is' if count == 1 else 'are'} omitted: {kinds}. The other "
        f"{trace.slice_count - count:,} become {counted(written, 'slice')}, because the format "
        "splits each operation into phases and adds a tick for each rank."
    )


def _ranks(trace: Trace) -> list[int]:
    return sorted({int(rank) for rank in trace.slices["rank"].unique()})


def _written(trace: Trace, target: Path) -> dict[str, Any]:
    return {
        "output": str(target),
        "files": [{"path": file.path, "format": file.format} for file in trace.files],
        "ranks": _ranks(trace),
        "counts": trace.counts,
        "warnings": trace.warnings,
    }


def _beside(path: Path, kind: Format) -> Path:
    name = Path(path.absolute().name)
    while name.suffix in (".gz", ".json", ".zip", ".hvt", ".parquet"):
        name = name.with_suffix("")
    target = Path(f"{name}{_ENDINGS[kind]}")
    if target.resolve() == path.resolve():
        target = Path(f"{name}-export{_ENDINGS[kind]}")
    return target
