"""`hvdtune dashboard`: traces, runs and studies in a browser, and a job under way."""

from __future__ import annotations

import contextlib
import tempfile
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psutil

from hvdtune.cli.messages import warn
from hvdtune.errors import HvdtuneError, UsageError
from hvdtune.workflows.rank_traces import newest_job

if TYPE_CHECKING:
    import pandas as pd

    from hvdtune.dashboard.live import Attached
    from hvdtune.launch.control import Caller

RUNS: Final = Path("runs")
MOST_RUNS: Final = 8
# Of each rank of an attached job that records nothing by itself; the oldest goes first.
KEPT_BYTES: Final = 16 << 20
KEPT_STEPS: Final = 2_000  # of a job with ranks on other hosts
LOWEST_PRIORITY: Final = 19


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
        job = None if attach is None else stack.enter_context(_attached(attach, link_gbps))
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


@contextlib.contextmanager
def _attached(target: str, link_gbps: float | None) -> Iterator[Attached]:
    """A job that records, on its own or for as long as the block runs."""
    from hvdtune.dashboard.live import Attached
    from hvdtune.launch.control import call

    with (
        tempfile.TemporaryDirectory(prefix="hvdtune-live-", ignore_cleanup_errors=True) as folder,
        call(target) as job,
    ):
        state = job.state()
        if state.far:
            warn(
                f"{state.far} of {state.ranks} ranks are on other hosts: of them there are step "
                "times only"
            )
        files = Path(state.timeline) if state.timeline else Path(folder) / "rank-%r.hvt"
        job.record(str(files), KEPT_BYTES)
        psutil.Process().nice(LOWEST_PRIORITY)  # the job's ranks may be beside it

        def goes_on() -> bool:
            try:
                job.state()
            except HvdtuneError:
                return False
            return True

        title = f"{state.title} (process {job.pid})"
        steps = _StepFeed(job).table if state.far else None
        yield Attached(title, lambda: newest_job(files.parent), goes_on, link_gbps, steps)


class _StepFeed:
    """The latest steps of all ranks, from the launcher."""

    def __init__(self, job: Caller) -> None:
        self._job = job
        self._number = 0
        self._first = 0
        self._rows: deque[list[int]] = deque(maxlen=KEPT_STEPS)
        self._table: pd.DataFrame | None = None

    def table(self) -> pd.DataFrame:
        """Columns rank, step, step_ms; the same object where nothing is new."""
        import numpy as np
        import pandas as pd

        end = self._first + len(self._rows)
        while (found := self._job.steps(self._number, end)).durations_us:
            if (found.job, found.first) != (self._number, end):
                self._rows.clear()
            self._number = found.job
            self._rows.extend(found.durations_us)
            end = found.first + len(found.durations_us)
            self._first = end - len(self._rows)
            self._table = None
        if self._table is None:
            ranks = len(self._rows[0]) if self._rows else 0
            rows = np.array(self._rows, np.int64).reshape(len(self._rows), ranks)
            steps = np.arange(self._first, self._first + len(rows))
            self._table = pd.DataFrame(
                {
                    "rank": np.tile(np.arange(rows.shape[1]), len(rows)),
                    "step": np.repeat(steps, rows.shape[1]),
                    "step_ms": rows.ravel() / 1e3,
                }
            )
        return self._table
