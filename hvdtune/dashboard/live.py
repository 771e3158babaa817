"""A job under way: its trace read again and again, without getting into its way."""

import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from hvdtune.dashboard.data import RunView, empty_trace
from hvdtune.errors import HvdtuneError
from hvdtune.timeline import Trace, merge

EVERY_S = 2.0
# Of one processor's time at most, on a machine that the job may need whole.
SHARE = 0.1
_NOT_YET = "No rank has begun to record yet."
_NONE_HERE = "No rank of this host has recorded anything."


@dataclass(frozen=True)
class Attached:
    """How a job is looked at.

    Attributes:
        title: what to call it.
        files: the rank files as they are now; none before the first rank has begun.
        goes_on: whether the job still does; asked by one thread only.
        link_gbps: see `data.RunView`.
        steps: of ranks whose files are not here, too: columns rank, step, step_ms, the latest of
            all ranks; asked by the same thread. None: all files are here.
    """

    title: str
    files: Callable[[], Sequence[Path]]
    goes_on: Callable[[], bool]
    link_gbps: float | None = None
    steps: Callable[[], pd.DataFrame] | None = None


@dataclass(frozen=True)
class Snapshot:
    """The job as it was last read.

    Attributes:
        number: how often it has been read.
        note: what is to be said of it, "" for nothing.
        ended: it does not go on.
        steps: see `Attached`; None: the run has them.
    """

    run: RunView
    number: int = 0
    note: str = _NOT_YET
    ended: bool = False
    steps: pd.DataFrame | None = None


class Live:
    """Reads a job on a thread of its own until closed.

    `_now` is guarded by `_lock`; everything else is the thread's own, or never changes.
    """

    def __init__(self, attached: Attached, every_s: float = EVERY_S) -> None:
        self._attached, self._every_s = attached, every_s
        self._lock = threading.Lock()
        self._now = Snapshot(RunView(attached.title, empty_trace([])))
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._read_on, name="hvdtune-live", daemon=True)
        self._thread.start()

    @property
    def now(self) -> Snapshot:
        """The job as it was last read."""
        with self._lock:
            return self._now

    def close(self) -> None:
        """Looks no more."""
        self._closed.set()
        self._thread.join()

    def _read_on(self) -> None:
        rest_s = 0.0
        ended = False
        while not ended and not self._closed.wait(rest_s):
            ended = not self._attached.goes_on()
            began_s = time.thread_time()
            found = self._with_steps(self._read(self.now))
            took_s = time.thread_time() - began_s
            with self._lock:
                self._now = replace(found, ended=ended)
            rest_s = max(self._every_s, took_s / SHARE)

    def _with_steps(self, found: Snapshot) -> Snapshot:
        if self._attached.steps is None:
            return found
        try:
            steps = self._attached.steps()
        except HvdtuneError:  # it has ended, which is asked for by itself
            return found
        note = found.note if steps.empty or len(found.run.trace.events) else _NONE_HERE
        number = found.number + (steps is not found.steps)
        return replace(found, steps=steps, number=number, note=note)

    def _read(self, before: Snapshot) -> Snapshot:
        try:
            files = self._attached.files()
            if not files:
                return before
            trace = merge(files, still_recorded=True)
        except (HvdtuneError, OSError) as error:
            return replace(before, note=str(error))
        try:
            return replace(before, run=self._analysed(trace), number=before.number + 1, note="")
        except Exception as error:  # whatever it is, later events may do without it
            traceback.print_exception(error)
            return replace(before, note=f"The latest events cannot be analysed: {error!r}")

    def _analysed(self, trace: Trace) -> RunView:
        run = RunView(self._attached.title, trace, link_gbps=self._attached.link_gbps)
        # Here, where it counts as time taken, and not when a page asks.
        _ = run.summary, run.answer
        return run
