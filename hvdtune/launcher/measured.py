"""Launches that are measured: the view of the tuner on a job."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from hvdtune.core.job.channel import Formed, StepDone
from hvdtune.errors import UsageError
from hvdtune.launcher.job import ExitReport, Job
from hvdtune.launcher.step_clock import StepClock

_PREFIX: Final = re.compile(rb"\[(\d+)\]<std(?:out|err)>:")


class Metric:
    """A pattern whose group is the time of a step in seconds, or steps (samples, ...) per second
    if the group is named `rate`.

    Several lines of one step, one from each rank, would count as steps: those of the first rank
    that writes one count.
    """

    def __init__(self, pattern: str) -> None:
        """Raises UsageError when the pattern is none, or has not one group."""
        try:
            self._pattern = re.compile(pattern)
        except re.error as error:
            raise UsageError(f"--metric-regex {pattern}: {error}") from None
        if self._pattern.groups != 1:
            raise UsageError(
                f"--metric-regex {pattern}: one group must hold the time of a step, as in "
                "'step_time: ([0-9.]+)', or be named rate, as in '(?P<rate>[0-9.]+) img/s'"
            )
        self._is_rate = "rate" in self._pattern.groupindex

    @property
    def pattern(self) -> str:
        """The regular expression as it was given."""
        return self._pattern.pattern

    def step_s(self, line: str) -> float | None:
        """The time of a step that the line tells, None if it tells none."""
        match = self._pattern.search(line)
        try:
            value = float(match[1]) if match else 0.0
        except (TypeError, ValueError):
            return None
        if not 0 < value < float("inf"):
            return None
        return 1 / value if self._is_rate else value


class MetricLines:
    """Takes a launch's output as a writer does, and keeps the step times in it. Any thread."""

    def __init__(self, metric: Metric, log: Path) -> None:
        """`log` is the file of the output, for who looks for such lines in it."""
        self._metric, self._log = metric, log
        self._rank: bytes | None = None
        self._steps: deque[tuple[int, ...]] = deque()

    @property
    def measured_by(self) -> str:
        """Where the times come from."""
        return f"the lines that match {self._metric.pattern}"

    @property
    def none_found(self) -> str:
        """Says what is wrong where there are no steps."""
        return (
            f"no line of the output matched --metric-regex {self._metric.pattern} with a number "
            f"above 0 in its group; the output is in {self._log}"
        )

    def write(self, stream: str, text: bytes) -> None:
        """A writer of `hvdtune.launcher.output`."""
        del stream
        for line in text.splitlines():
            prefix = _PREFIX.match(line)
            if prefix is None or self._rank not in (None, prefix[1]):
                continue
            step_s = self._metric.step_s(line[prefix.end() :].decode(errors="replace"))
            if step_s is not None:
                self._rank = prefix[1]
                self._steps.append((max(1, round(step_s * 1e9)),))

    def steps(self) -> list[tuple[int, ...]]:
        """The steps not yet taken."""
        return [self._steps.popleft() for _ in range(len(self._steps))]


class MeasuredJob:
    """A job whose steps are taken from lines of its output, else from its runtime.

    The runtime is the job channel for hvdtune's ranks, else the clock of torch's optimizer. The job
    has failed if the `clock` reports other arguments of DistributedDataParallel than it was given.
    """

    def __init__(
        self,
        job: Job,
        *,
        is_own: bool,
        lines: MetricLines | None = None,
        clock: StepClock | None = None,
    ) -> None:
        """
        Args:
            is_own: the processes are hvdtune's ranks.
        """
        self.job, self._is_own, self._lines, self._clock = job, is_own, lines, clock
        self._fault: str | None = None
        self.formed = False

    @property
    def measured_by(self) -> str:
        """The source of the step times."""
        if self._lines is not None:
            return self._lines.measured_by
        return (
            "the optimizer steps of the ranks" if self._is_own else "the steps of torch's optimizer"
        )

    @property
    def without_steps(self) -> str:
        """The error if no step came; "" if the wall time is measured instead."""
        return self._lines.none_found if self._lines else ""

    @property
    def wall_s(self) -> float:
        """See `Job.wall_s`."""
        return self.job.wall_s

    def steps(self) -> Sequence[tuple[int, ...]]:
        """Return the steps not yet taken, in nanoseconds by rank."""
        taken = []
        while (event := self.job.next_event(0.0)) is not None:
            if isinstance(event, StepDone):
                taken.append(event.durations_ns)
            self.formed |= isinstance(event, Formed)
        if self._clock is not None and not self._is_own:
            taken = self._clock.steps()
        if self._lines is not None:
            taken = self._lines.steps()
        if taken and self._fault is None:
            self._fault = "" if self._clock is None else self._clock.ddp_fault()
        return () if self._fault else taken

    def wait(self, timeout_s: float) -> None:
        """Return when a process has ended, or after the timeout."""
        self.job.wait_for_change(timeout_s)

    def poll(self) -> ExitReport | None:
        """Return the end of the job; None while it runs."""
        return ExitReport(1, self._fault, ()) if self._fault else self.job.poll()

    def terminate(self) -> None:
        """End all processes."""
        self.job.terminate()
