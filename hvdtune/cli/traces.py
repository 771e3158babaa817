"""`hvdtune timeline stats`, `merge` and `export`: traces of any format, files or folders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from hvdtune.cli.messages import info, names_made_visible, warning
from hvdtune.errors import HvdtuneError
from hvdtune.plural import counted
from hvdtune.workflows.traces import existing, refuse_overwriting, refuse_two_files_of_a_rank

if TYPE_CHECKING:
    from hvdtune.timeline import Trace

Paths = Annotated[
    list[Path],
    typer.Argument(
        metavar="PATH...", help="Traces, also .gz and .zip; folders of ranks' traces; run folders."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Format = Literal["chrome", "perfetto", "parquet", "csv"]
_ENDINGS = {"chrome": ".json", "perfetto": ".json", "parquet": ".parquet", "csv": ".csv"}


def register(timeline: typer.Typer) -> None:
    """Adds the commands."""
    timeline.command()(stats)
    timeline.command()(merge)
    timeline.command()(export)


def shown(context: typer.Context) -> None:
    """Record traces and read them."""
    # Names in a trace are anybody's: they must not steer the terminal.
    context.with_resource(names_made_visible())


def stats(paths: Paths, *, as_json: Json = False) -> int:
    """Show what is in a trace, by kind, name and thread, and what could not be read of it."""
    from hvdtune.cli.trace_tables import print_stats
    from hvdtune.timeline.analysis.overview import overview

    found = overview(existing(paths))
    if as_json:
        print(json.dumps(found.document()))
    else:
        print_stats(found)
    return 0


def merge(
    paths: Paths,
    *,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The trace to write; .gz compresses it.")
    ],
    as_json: Json = False,
) -> int:
    """Join the traces of several ranks into one, on one clock if their clocks are known."""
    return _write(paths, output, "chrome", as_json=as_json, is_one_job=True)


def export(
    paths: Paths,
    *,
    kind: Annotated[Format, typer.Option("--format", help="Format to write.")] = "chrome",
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="The file to write. [default: the first PATH's name with the format's ending]",
        ),
    ] = None,
    as_json: Json = False,
) -> int:
    """Write a trace for Perfetto and chrome://tracing, or as a table."""
    target = output or _beside(paths[0], kind)
    return _write(paths, target, kind, as_json=as_json)


def _write(
    paths: list[Path], target: Path, kind: Format, *, as_json: bool, is_one_job: bool = False
) -> int:
    from hvdtune.timeline import open_trace, write_slices

    found = existing(paths)
    refuse_overwriting(target, found)
    trace = open_trace(found)
    if is_one_job:
        refuse_two_files_of_a_rank(trace)
    try:
        write_slices(trace, target, kind)
    except OSError as error:
        raise HvdtuneError(f"cannot write {target}: {error.strerror or error}") from None
    if as_json:
        print(json.dumps(_written(trace, target)))
        return 0
    for text in trace.warnings:
        warning(text)
    info(f"{target}: {counted(len(trace.slices), 'slice')} of {counted(len(trace.files), 'file')}")
    return 0


def _written(trace: Trace, target: Path) -> dict[str, Any]:
    return {
        "output": str(target),
        "files": [{"path": file.path, "format": file.format} for file in trace.files],
        "slices": len(trace.slices),
        "ranks": sorted({int(rank) for rank in trace.slices["rank"].unique()}),
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
