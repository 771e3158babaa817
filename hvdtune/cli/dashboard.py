"""`hvdtune dashboard`: traces, runs and studies in a browser, and a job under way."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final

from hvdtune.cli.messages import TerminalReporter
from hvdtune.errors import HvdtuneError, UsageError

RUNS: Final = Path("runs")
MOST_RUNS: Final = 8


def show(
    paths: list[Path],
    host: str,
    port: int,
    *,
    browser: bool,
    attach: str | None = None,
    link_gbps: float | None = None,
) -> int:
    """Serves until Ctrl-C. Without a path and a job: the newest runs below ./runs."""
    try:
        from hvdtune.dashboard.app import serve
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("hvdtune"):
            raise
        raise HvdtuneError(
            f"the dashboard needs {error.name}: pip install 'hvdtune[dashboard]'"
        ) from None
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
    """A path, or the run of that name."""
    in_runs = RUNS / path
    if not path.exists() and len(path.parts) == 1 and in_runs.is_dir():
        return in_runs
    return path
