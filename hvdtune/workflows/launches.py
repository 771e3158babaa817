"""Starters of jobs of fixed size and of commands of other runtimes under a setting."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from hvdtune.core.config.environment import own_environ
from hvdtune.core.config.knobs import Setting, Value
from hvdtune.errors import StudyError
from hvdtune.launcher.hosts import free_port
from hvdtune.launcher.job import ExitReport, Job
from hvdtune.launcher.measured import MeasuredJob, Metric, MetricLines
from hvdtune.launcher.output import Writer
from hvdtune.launcher.plan import starts_its_own_ranks, torch_environ
from hvdtune.launcher.ranks import start_command, start_ranks
from hvdtune.launcher.step_clock import StepClock
from hvdtune.tuner.space.targets import DDP_SIZES, Target
from hvdtune.workflows.requests import JobRequest

if TYPE_CHECKING:
    from hvdtune.workflows.session import LaunchFiles

_LOOPBACK: Final = "127.0.0.1"
DDP: Final = "ddp_"  # prefix of DistributedDataParallel's knobs


class FixedStarter:
    """Starts hvdtune's own ranks, which can be tuned while they run."""

    def __init__(self, job: JobRequest, recording_mb: float = 0.0) -> None:
        """
        Args:
            recording_mb: limit of each recording unless the job has one; 0: no limit.
        """
        limit_mb = job.options.timeline_max_mb or recording_mb
        self._plan, self._options = job.plan, replace(job.options, timeline_max_mb=limit_mb)

    def start(self, setting: Setting, files: LaunchFiles, writers: list[Writer]) -> Job:
        """Start the ranks."""
        options = replace(self._options, timeline=files.timeline("rank-%r.hvt"))
        return start_ranks(self._plan, setting, options, writers=writers)


class TargetStarter:
    """Starts a command again for every setting, with the variables of a target.

    Attributes:
        starts_ranks: hvdtune starts the ranks, not the command.
    """

    def __init__(
        self, job: JobRequest, target: Target, metric: Metric | None, always: Collection[str] = ()
    ) -> None:
        """
        Args:
            always: knobs that are set even to the values that the command has by itself.
        """
        self._job, self._target, self._metric = job, target, metric
        self._always = frozenset(always)
        self._is_own = job.adapter == "hvdtune"
        self._latest: MeasuredJob | None = None
        self.starts_ranks = self._is_own or (
            job.adapter == "ddp" and not starts_its_own_ranks(job.words)
        )

    def run_once(self, setting: Setting, writers: list[Writer]) -> ExitReport:
        """Run the command to its end."""
        with self._started(setting, writers) as (running, _):
            return running.wait()

    @contextlib.contextmanager
    def start(
        self, setting: Setting, files: LaunchFiles, writers: list[Writer]
    ) -> Iterator[MeasuredJob]:
        """Start a launch to measure. Raises StudyError if the launch before formed no job."""
        if self._is_own and self._latest is not None and not self._latest.formed:
            raise StudyError(
                "The command's processes never called hvd.init(), so hvdtune's knobs have no "
                "effect on them. Tune variables of the command: --adapter command --vary NAME=A,B"
            )
        lines = None
        if self._metric is not None and files.log is not None:
            lines = MetricLines(self._metric, files.log)
            writers = [*writers, lines.write]
        with self._started(setting, writers) as (running, clock):
            self._latest = MeasuredJob(running, is_own=self._is_own, lines=lines, clock=clock)
            yield self._latest

    def ddp_arguments(self, limit_s: float) -> dict[str, Value]:
        """Start the command for the arguments that it gives DistributedDataParallel.

        Raises StudyError if the command makes none within `limit_s`.
        """
        with self._started(self._target.native, []) as (running, clock):
            assert clock is not None, "the target has no knob of DDP"
            return _ddp_arguments(running, clock, limit_s)

    @contextlib.contextmanager
    def _started(
        self, setting: Setting, writers: list[Writer]
    ) -> Iterator[tuple[Job, StepClock | None]]:
        """Start the processes; the clock times the steps of torch's optimizer."""
        ddp = {name for name in self._target.native if name.startswith(DDP)}
        has_clock = bool(ddp) if self._is_own else self._job.adapter != "command"
        with ExitStack() as stack:
            clock = None
            if has_clock:
                clock = StepClock(_ddp_setting(self._target, setting, self._always))
                stack.callback(clock.close)
            start = self._start_job if self._is_own else self._start_command
            running = start(setting, clock, writers)
            stack.callback(running.terminate)
            yield running, clock

    def _start_job(self, setting: Setting, clock: StepClock | None, writers: list[Writer]) -> Job:
        options, variables = self._job.options, self._target.environ(setting)
        environ = {**options.environ, **variables}
        if clock is not None:
            environ |= clock.environ(own_environ() | environ)
        transport = variables.get("HVDTUNE_TRANSPORT", options.transport)
        options = replace(options, environ=environ, transport=transport)
        core = {
            name: value
            for name, value in setting.items()
            if name not in self._target.variables and not name.startswith(DDP)
        }
        return start_ranks(self._job.plan, core, options, writers=writers)

    def _start_command(
        self, setting: Setting, clock: StepClock | None, writers: list[Writer]
    ) -> Job:
        environ = own_environ() | {"PYTHONUNBUFFERED": "1"} | self._target.environ(setting)
        if clock is not None:
            environ |= clock.environ(environ)
        environs: tuple[dict[str, str], ...] = (environ,)
        if self.starts_ranks:
            slots, port = self._job.plan.slots, free_port(_LOOPBACK)
            environs = tuple(
                environ | torch_environ(slot, len(slots), _LOOPBACK, port) for slot in slots
            )
        return start_command(self._job.plan.command, environs, writers)


def _ddp_arguments(job: Job, clock: StepClock, limit_s: float) -> dict[str, Value]:
    deadline_s = time.monotonic() + limit_s
    while not (made := clock.ddp_arguments()):
        report = job.poll()
        if report is not None and not (made := clock.ddp_arguments()):
            last = f"; its last line: {report.tail[-1].strip()}" if report.tail else ""
            reason = report.reason or "the command made no DistributedDataParallel"
            raise StudyError(f"{reason}, so there is nothing to tune{last}")
        if time.monotonic() > deadline_s:
            raise StudyError(f"no DistributedDataParallel was made within {limit_s:g} s")
        job.wait_for_change(0.05)
    return {DDP + name: value for name, value in made[0].items()}


def _ddp_setting(target: Target, setting: Setting, always: Collection[str]) -> dict[str, Any]:
    """Return DDP's arguments that differ from the script's own; its two sizes go together."""
    changed = {
        name
        for name, value in setting.items()
        if name.startswith(DDP) and (value != target.native[name] or name in always)
    }
    if changed & DDP_SIZES:
        changed |= DDP_SIZES
    return {name.removeprefix(DDP): setting[name] for name in sorted(changed)}
