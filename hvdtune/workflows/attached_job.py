"""A running job that the dashboard shows."""

from __future__ import annotations

import contextlib
import tempfile
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psutil

from hvdtune.dashboard.live import Attached
from hvdtune.errors import HvdtuneError
from hvdtune.launcher.control import ControlClient, connect
from hvdtune.workflows.requests import StatusReporter
from hvdtune.workflows.traces import newest_job

if TYPE_CHECKING:
    import pandas as pd

# Recording of each rank of a job that records nothing by itself; the oldest data is dropped.
_KEPT_BYTES: Final = 16 << 20
_KEPT_STEPS: Final = 2_000  # of a job with ranks on other hosts
_LOWEST_PRIORITY: Final = 19


@contextlib.contextmanager
def attached_job(
    target: str, link_gbps: float | None, reporter: StatusReporter
) -> Iterator[Attached]:
    """Record the job that a process id or run folder names until the block ends.

    This process gets the lowest priority. Raises UsageError if the job does not exist.
    """
    with (
        tempfile.TemporaryDirectory(prefix="hvdtune-live-", ignore_cleanup_errors=True) as folder,
        connect(target) as job,
    ):
        state = job.state()
        if state.remote:
            reporter.warning(
                f"{state.remote} of {state.ranks} ranks are on other hosts: only their step times "
                "are shown"
            )
        files = Path(state.timeline) if state.timeline else Path(folder) / "rank-%r.hvt"
        job.record(str(files), _KEPT_BYTES)
        psutil.Process().nice(_LOWEST_PRIORITY)  # the ranks may share this host

        def goes_on() -> bool:
            try:
                job.state()
            except HvdtuneError:
                return False
            return True

        title = f"{state.title} (process {job.pid})"
        steps = StepFeed(job).table if state.remote else None
        yield Attached(title, lambda: newest_job(files.parent), goes_on, link_gbps, steps)


class StepFeed:
    """The latest steps of all ranks, as the launcher reports them."""

    def __init__(self, job: ControlClient) -> None:
        self._job = job
        self._number = 0
        self._first = 0
        self._rows: deque[list[int]] = deque(maxlen=_KEPT_STEPS)
        self._table: pd.DataFrame | None = None

    def table(self) -> pd.DataFrame:
        """Return the columns rank, step, step_ms; the same object without new steps."""
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
