"""Launches that are measured: what the tuner asks of a job or of any other command."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from hvdtune.core.job.channel import Formed, StepDone
from hvdtune.errors import UsageError
from hvdtune.launcher.command import Command
from hvdtune.launcher.run import ExitReport, Job
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


class _Measured:
    """A launch whose steps come from lines of its output, else as its runtime tells them.

    It has failed where a `clock` tells that DistributedDataParallel has other arguments than it was
    to have.
    """

    def __init__(
        self, runtime: str, lines: MetricLines | None, clock: StepClock | None = None
    ) -> None:
        self._runtime, self._lines, self._clock = runtime, lines, clock
        self._fault: str | None = None

    @property
    def measured_by(self) -> str:
        """Where the step times come from."""
        return self._lines.measured_by if self._lines else self._runtime

    @property
    def without_steps(self) -> str:
        """Says what is wrong where no step came; "" where the wall time will do."""
        return self._lines.none_found if self._lines else ""

    def _unless_at_fault(self, steps: Sequence[tuple[int, ...]]) -> Sequence[tuple[int, ...]]:
        if steps and self._fault is None:
            self._fault = "" if self._clock is None else self._clock.ddp_fault()
        return () if self._fault else steps


class MeasuredJob(_Measured):
    """A job of hvdtune's: its steps come over the job channel, unless lines tell them."""

    def __init__(
        self, job: Job, lines: MetricLines | None = None, clock: StepClock | None = None
    ) -> None:
        super().__init__("the optimizer steps of the ranks", lines, clock)
        self.job = job
        self._began_s = time.monotonic()
        self._ended_s: float | None = None
        self.formed = False

    @property
    def wall_s(self) -> float:
        """Seconds from the start to the end of the last rank; so far, while one runs."""
        return (self._ended_s or time.monotonic()) - self._began_s

    def steps(self) -> Sequence[tuple[int, ...]]:
        """The steps not yet taken, in nanoseconds by rank."""
        taken = []
        while (event := self.job.next_event(0.0)) is not None:
            if isinstance(event, StepDone):
                taken.append(event.durations_ns)
            self.formed |= isinstance(event, Formed)
        return self._unless_at_fault(self._lines.steps() if self._lines else taken)

    def wait(self, timeout_s: float) -> None:
        """Returns when a rank has ended, or after the timeout."""
        if not self.job.wait_for_change(timeout_s) and self._ended_s is None:
            self._ended_s = time.monotonic()

    def poll(self) -> ExitReport | None:
        """How the job ended; None while it runs."""
        if not self.job.wait_for_change(0.0) and self._ended_s is None:
            self._ended_s = time.monotonic()
        return ExitReport(1, self._fault, ()) if self._fault else self.job.poll()

    def terminate(self) -> None:
        """Ends all ranks."""
        self.job.terminate()


class MeasuredCommand(_Measured):
    """Any other command: its steps come from lines of its output, else from the clock."""

    def __init__(
        self, command: Command, clock: StepClock | None = None, lines: MetricLines | None = None
    ) -> None:
        super().__init__("the steps of torch's optimizer", lines, clock)
        self.command = command

    @property
    def wall_s(self) -> float:
        """Seconds from the start to the end of the last process; so far, while one runs."""
        return self.command.wall_s

    def steps(self) -> Sequence[tuple[int, ...]]:
        """The steps not yet taken, in nanoseconds by process."""
        clocked = [] if self._clock is None else self._clock.steps()
        return self._unless_at_fault(clocked if self._lines is None else self._lines.steps())

    def wait(self, timeout_s: float) -> None:
        """Returns when a process has ended, or after the timeout."""
        self.command.wait(timeout_s)

    def poll(self) -> ExitReport | None:
        """How the command ended; None while it runs."""
        return ExitReport(1, self._fault, ()) if self._fault else self.command.poll()

    def terminate(self) -> None:
        """Ends all processes."""
        self.command.terminate()
