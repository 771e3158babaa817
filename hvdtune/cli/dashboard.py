"""`hvdtune dashboard`: traces, runs, studies and a running job in a browser."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import click

from hvdtune.cli.handover import WorkbenchCommand
from hvdtune.cli.messages import TerminalReporter
from hvdtune.cli.parameters import Number, WholeNumber, command, explained
from hvdtune.errors import UsageError

RUNS: Final = Path("runs")
MOST_RUNS: Final = 8


def _prefix(_: click.Context, __: click.Parameter, text: str) -> str:
    if any(map(str.isspace, text)):
        raise click.BadParameter(f"'{text}' contains a space")
    return text


def address_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options for the address of the page."""
    for option in (
        click.option("--browser/--no-browser", default=True, help="Open a browser window."),
        click.option(
            "--port",
            type=WholeNumber(0, 65535),
            default=8050,
            help="Port to listen on; 0: any free one.",
        ),
        click.option("--host", default="127.0.0.1", help="Address to listen on."),
        click.option(
            "--prefix",
            default="",
            callback=_prefix,
            show_default=False,
            metavar="PATH|URL",
            help="Path or URL at which a proxy serves the page.",
        ),
    ):
        function = option(function)
    return function


@command(cls=WorkbenchCommand)
@explained(
    "paths",
    nargs=-1,
    type=Path,
    metavar="[RUN|TRACE|STUDY]...",
    help="Runs, traces or studies to show. [default: the newest of ./runs]",
)
@click.option(
    "--attach",
    metavar="PID|RUN",
    help="Running job to show: ID of one of its processes, or its run folder.",
)
@click.option(
    "--link-gbps", type=Number(0.001), help="Bandwidth of a link between hosts, in Gbit/s."
)
@address_options
def dashboard(**given: Any) -> int:
    """Show runs, traces, studies and running jobs in a browser."""
    return show(**given)


def show(
    paths: Sequence[Path],
    *,
    host: str,
    port: int,
    browser: bool,
    prefix: str,
    attach: str | None = None,
    link_gbps: float | None = None,
) -> int:
    """Serve until Ctrl-C. Without a path and a job, show the newest runs below ./runs."""
    from hvdtune.dashboard.app import serve

    if not paths and attach is None:
        paths = _newest()
    paths = [_found(path) for path in paths]
    with contextlib.ExitStack() as stack:
        job = None
        if attach is not None:
            from hvdtune.workflows.attached_job import attached_job

            job = stack.enter_context(attached_job(attach, link_gbps, TerminalReporter()))
        serve(
            paths,
            host=host,
            port=port,
            open_browser=browser,
            attached=job,
            link_gbps=link_gbps,
            prefix=prefix,
        )
    return 0


def _newest() -> list[Path]:
    files = sorted(RUNS.glob("*/run.json"), key=lambda path: path.stat().st_mtime_ns)
    if not files:
        raise UsageError(
            f"there are no runs in {RUNS.absolute()}: name a trace, a run folder or a study"
        )
    return [file.parent for file in reversed(files[-MOST_RUNS:])]


def _found(path: Path) -> Path:
    """Return the path, or the run of that name."""
    in_runs = RUNS / path
    if not path.exists() and len(path.parts) == 1 and in_runs.is_dir():
        return in_runs
    return path
