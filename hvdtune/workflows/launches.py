"""Starts a command under a setting: as a job of hvdtune's, or as another runtime wants it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, Final, cast

from hvdtune.cli.messages import complain, warn
from hvdtune.cli.options import RunOptions
from hvdtune.cli.resolve import job_options
from hvdtune.core.config.environment import own_environ
from hvdtune.core.config.knobs import Setting, Value, load_knobs
from hvdtune.errors import StudyError
from hvdtune.launch.command import Command, CommandPlan, free_port
from hvdtune.launch.measured import MeasuredCommand, MeasuredJob, Metric, MetricLines
from hvdtune.launch.output import Writer, file_writer
from hvdtune.launch.plan import starts_its_own_ranks, torch_environ
from hvdtune.launch.run import Job, JobOptions, JobPlan
from hvdtune.launch.step_clock import StepClock
from hvdtune.tuner.results.profile import read_profile
from hvdtune.tuner.space.targets import Adapter, Target
from hvdtune.workflows.run_folder import RunFolder

_LOOPBACK: Final = "127.0.0.1"
_DDP: Final = "ddp_"


class Launches:
    """One launch after another; what belongs to one ends when the next is started.

    Used from one thread.
    """

    starts_ranks = True

    def __init__(self, plan: JobPlan, target: Target) -> None:
        self._plan, self._target = plan, target
        self._folder: RunFolder | None = None
        self._writers: list[Writer] = []
        self._metric: Metric | None = None
        self._current = ExitStack()

    @contextlib.contextmanager
    def into(
        self, folder: RunFolder, writers: Sequence[Writer], metric: Metric | None
    ) -> Iterator[None]:
        """Inside, launches leave logs in the folder and are measured by the metric, if any.

        Leaving it leaves no process.
        """
        self._folder, self._writers, self._metric = folder, [*writers], metric
        try:
            yield
        finally:
            self._current.close()

    def start(self, setting: Setting, number: int) -> MeasuredJob | MeasuredCommand:
        """The next launch. The one before must have ended."""
        self._current.close()
        assert self._folder is not None
        path = self._folder.log(number)
        log = path.open("ab", buffering=0)
        self._current.enter_context(log)
        lines = None if self._metric is None else MetricLines(self._metric, path)
        writers = [*self._writers, file_writer(log), *([lines.write] if lines else [])]
        return self._launch(setting, writers, lines)

    def _launch(
        self, setting: Setting, writers: list[Writer], lines: MetricLines | None
    ) -> MeasuredJob | MeasuredCommand:
        raise NotImplementedError


class JobLaunches(Launches):
    """Ranks of hvdtune's."""

    def __init__(self, plan: JobPlan, target: Target, options: JobOptions) -> None:
        super().__init__(plan, target)
        self._options = options
        self._last: MeasuredJob | None = None

    def run_once(self, setting: Setting, writers: list[Writer]) -> int:
        """Runs the job to its end; returns its exit code."""
        with self._job(setting, writers) as job:
            report = job.wait()
        if report.reason:
            (complain if report.returncode else warn)(report.reason)
        return report.returncode

    def _launch(
        self, setting: Setting, writers: list[Writer], lines: MetricLines | None
    ) -> MeasuredJob:
        if self._last is not None and not self._last.formed:
            raise StudyError(
                "the command's processes never called hvd.init(), so that hvdtune's knobs are "
                "nothing to it; tune variables of its own with --adapter command --vary NAME=A,B"
            )
        self._last = MeasuredJob(self._current.enter_context(self._job(setting, writers)), lines)
        return self._last

    def _job(self, setting: Setting, writers: list[Writer]) -> Job:
        variables = self._target.environ(setting)
        options = replace(
            self._options,
            environ={**self._options.environ, **variables},
            transport=variables.get("HVDTUNE_TRANSPORT", self._options.transport),
        )
        core = {k: v for k, v in setting.items() if k not in self._target.variables}
        return Job.start(self._plan, core, options, writers=writers)


class CommandLaunches(Launches):
    """Processes of another runtime: torch's ranks, or one command that starts its own."""

    def __init__(
        self,
        plan: JobPlan,
        target: Target,
        always: Collection[str],
        *,
        starts_ranks: bool,
        clocks: bool,
    ) -> None:
        super().__init__(plan, target)
        self._always = frozenset(always)
        self.starts_ranks, self._clocks = starts_ranks, clocks

    def run_once(self, setting: Setting, writers: list[Writer]) -> int:
        """Runs the command to its end; returns its exit code."""
        with self._running(setting, writers) as (command, _):
            while (report := command.poll()) is None:
                command.wait(0.5)
        if report.reason:
            complain(report.reason)
        return report.returncode

    def ddp_arguments(self, limit_s: float) -> dict[str, Value]:
        """What the script itself gives DistributedDataParallel, as knobs.

        Raises StudyError when it ends, or the time does, before it has made one.
        """
        deadline_s = time.monotonic() + limit_s
        with self._running(self._target.native, []) as (command, clock):
            while not (made := clock.ddp_arguments()):
                report = command.poll()
                if report is not None and not (made := clock.ddp_arguments()):
                    last = f"; its last line: {report.tail[-1].strip()}" if report.tail else ""
                    reason = report.reason or "the command made no DistributedDataParallel"
                    raise StudyError(f"{reason}, so there is nothing to tune{last}")
                if time.monotonic() > deadline_s:
                    raise StudyError(f"no DistributedDataParallel was made within {limit_s:g} s")
                command.wait(0.05)
        return {_DDP + name: value for name, value in made[0].items()}

    def _launch(
        self, setting: Setting, writers: list[Writer], lines: MetricLines | None
    ) -> MeasuredCommand:
        command, clock = self._current.enter_context(self._running(setting, writers))
        return MeasuredCommand(command, clock if self._clocks else None, lines)

    @contextlib.contextmanager
    def _running(
        self, setting: Setting, writers: list[Writer]
    ) -> Iterator[tuple[Command, StepClock]]:
        clock = StepClock(self._ddp_setting(setting))
        try:
            environ = own_environ() | {"PYTHONUNBUFFERED": "1"} | self._target.environ(setting)
            if self._clocks:
                environ |= clock.environ(environ)
            with Command(CommandPlan(self._plan.command, self._environs(environ)), writers) as it:
                yield it, clock
        finally:
            clock.close()

    def _environs(self, environ: dict[str, str]) -> tuple[Mapping[str, str], ...]:
        if not self.starts_ranks:
            return (environ,)
        slots, port = self._plan.slots, free_port(_LOOPBACK)
        return tuple(environ | torch_environ(slot, len(slots), _LOOPBACK, port) for slot in slots)

    def _ddp_setting(self, setting: Setting) -> dict[str, Any]:
        """DDP's arguments where they differ from the script's own; its two sizes go together."""
        native = self._target.native
        changed = {
            name
            for name, value in setting.items()
            if name.startswith(_DDP) and (value != native[name] or name in self._always)
        }
        sizes = {f"{_DDP}bucket_cap_mb", f"{_DDP}first_bucket_mb"}
        if changed & sizes:
            changed |= sizes
        return {name.removeprefix(_DDP): setting[name] for name in sorted(changed)}


def adapter_of(options: RunOptions) -> Adapter | None:
    """That of the options, else of a profile that a plain run cannot apply."""
    if options.adapter is not None or options.profile is None or options.trials is not None:
        return options.adapter
    profile = read_profile(options.profile)
    if {*profile.setting} <= {knob.name for knob in load_knobs()} and profile.adapter == "hvdtune":
        return None
    return cast(Adapter, profile.adapter)


def launches_of(
    options: RunOptions, plan: JobPlan, target: Target, always: Collection[str] = ()
) -> JobLaunches | CommandLaunches:
    """How the options' adapter starts the command.

    Knobs in `always` are given even to a command that has these values by itself.
    """
    if options.adapter in (None, "hvdtune"):
        return JobLaunches(plan, target, job_options(options, plan.slots))
    starts_ranks = options.adapter == "ddp" and not starts_its_own_ranks(options.command)
    clocks = options.adapter != "command"
    return CommandLaunches(plan, target, always, starts_ranks=starts_ranks, clocks=clocks)
