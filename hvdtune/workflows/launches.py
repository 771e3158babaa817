"""Starts a command under a setting, once or again and again."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from hvdtune.core.config.environment import own_environ
from hvdtune.core.config.knobs import Setting, Value
from hvdtune.errors import StudyError
from hvdtune.launcher.command import Command, CommandPlan, free_port
from hvdtune.launcher.measured import MeasuredCommand, MeasuredJob, Metric, MetricLines
from hvdtune.launcher.output import Writer, file_writer, stamped
from hvdtune.launcher.plan import torch_environ
from hvdtune.launcher.rank_files import rank_files, worker_files
from hvdtune.launcher.run import ExitReport, Job, JobOptions, JobPlan
from hvdtune.launcher.step_clock import StepClock
from hvdtune.tuner.measure.trace_files import RawTraces
from hvdtune.tuner.space.targets import DDP_SIZES, Target
from hvdtune.workflows.requests import OutputRequest, StatusReporter
from hvdtune.workflows.run_folder import RunFolder

if TYPE_CHECKING:
    from typing_extensions import Self

_LOOPBACK: Final = "127.0.0.1"
DDP: Final = "ddp_"  # begins the names of DistributedDataParallel's knobs

Started = TypeVar("Started")


@dataclass(frozen=True)
class LaunchFiles:
    """The log of one launch, and the path of its raw traces with `%r` for the rank ("": none)."""

    log: Path
    timeline: str = ""


# Starts a command under a setting; leaving the context leaves no process.
Starter = Callable[[Setting, LaunchFiles, list[Writer]], AbstractContextManager[Started]]


class Launches(Generic[Started]):
    """The launches of a run folder, one after another: starting one ends the one before.

    Each has its log in the folder, and with `record` raw traces. Leaving it leaves no process. Used
    from one thread.
    """

    def __init__(
        self,
        starter: Starter[Started],
        folder: RunFolder,
        writers: Sequence[Writer],
        *,
        record: bool = False,
    ) -> None:
        self._starter, self._folder, self._writers = starter, folder, list(writers)
        self._record = record
        self._running = ExitStack()
        self.number = -1
        self.latest: Started | None = None

    def start(self, setting: Setting, number: int) -> Started:
        """The launch of this number."""
        self.close()
        self.number = number
        path = self._folder.log(number)
        log = self._running.enter_context(path.open("ab", buffering=0))
        raw = str(self._folder.ranks(number) / "rank-%r.hvt") if self._record else ""
        writers = [*self._writers, file_writer(log)]
        started = self._starter(setting, LaunchFiles(path, raw), writers)
        self.latest = self._running.enter_context(started)
        return self.latest

    def traces(self, ranks: int) -> RawTraces | None:
        """Where the raw traces of a launch lie, None where none are recorded."""
        return RawTraces(self._folder.path, ranks) if self._record else None

    def close(self) -> None:
        """Ends the launch that runs, if any; `latest` still tells of it."""
        self._running.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def live_starter(plan: JobPlan, options: JobOptions) -> Starter[Job]:
    """Starts hvdtune's ranks for a study in a live run."""

    def start(setting: Setting, files: LaunchFiles, writers: list[Writer]) -> Job:
        timed = replace(options, timeline=files.timeline)
        return Job.start(plan, setting, timed, writers=writers)

    return start


def output_writers(
    output: OutputRequest, reporter: StatusReporter, ranks: int | None, stack: ExitStack
) -> list[Writer]:
    """Where the output of ranks goes that nothing measures; `stack` closes their files.

    Args:
        ranks: how many there are, None of an elastic job.

    Raises UsageError when the folder for them cannot be written.
    """
    writers: list[Writer] = [stamped(reporter.write) if output.timestamps else reporter.write]
    if output.rank_files is not None:
        files = worker_files(output.rank_files)
        if ranks is not None:
            files = rank_files(output.rank_files, ranks)
        writers.append(stack.enter_context(files))
    return writers


class JobStarter:
    """Starts hvdtune's ranks again for every setting, with the variables of a target.

    Where the target has knobs of DDP's, those in `always` are given even to a script that has these
    values by itself.
    """

    starts_ranks = True

    def __init__(
        self,
        plan: JobPlan,
        target: Target,
        options: JobOptions,
        metric: Metric | None = None,
        always: Collection[str] = (),
    ) -> None:
        self._plan, self._target, self._options, self._metric = plan, target, options, metric
        self._always = frozenset(always)
        self._latest: MeasuredJob | None = None

    def run_once(self, setting: Setting, writers: list[Writer]) -> ExitReport:
        """Runs the job to its end."""
        with self._started(setting, writers) as (job, _):
            return job.wait()

    @contextlib.contextmanager
    def start(
        self, setting: Setting, files: LaunchFiles, writers: list[Writer]
    ) -> Iterator[MeasuredJob]:
        """A launch that is measured. Raises StudyError when the one before formed no job."""
        if self._latest is not None and not self._latest.formed:
            raise StudyError(
                "the command's processes never called hvd.init(), so that hvdtune's knobs have no "
                "effect on it; tune variables of its own with --adapter command --vary NAME=A,B"
            )
        lines = _metric_lines(self._metric, files)
        writers = [*writers, *([lines.write] if lines else [])]
        with self._started(setting, writers) as (job, clock):
            self._latest = MeasuredJob(job, lines, clock)
            yield self._latest

    def ddp_arguments(self, limit_s: float) -> dict[str, Value]:
        """As CommandStarter.ddp_arguments."""
        with self._started(self._target.native, []) as (job, clock):
            assert clock is not None, "no knob is DDP's"
            return _ddp_arguments(MeasuredJob(job), clock, limit_s)

    @contextlib.contextmanager
    def _started(
        self, setting: Setting, writers: list[Writer]
    ) -> Iterator[tuple[Job, StepClock | None]]:
        variables = self._target.environ(setting)
        environ = {**self._options.environ, **variables}
        own = {name for name in self._target.native if name.startswith(DDP)}
        clock: StepClock | None = None
        with ExitStack() as stack:
            if own:
                clock = StepClock(_ddp_setting(self._target, setting, self._always))
                stack.callback(clock.close)
                environ |= clock.environ(own_environ() | environ)
            options = replace(
                self._options,
                environ=environ,
                transport=variables.get("HVDTUNE_TRANSPORT", self._options.transport),
            )
            core = {k: v for k, v in setting.items() if k not in {*self._target.variables, *own}}
            yield stack.enter_context(Job.start(self._plan, core, options, writers=writers)), clock


class CommandStarter:
    """Starts processes of another runtime: torch's ranks, or a command that starts its own.

    Knobs in `always` are given even to a command that has these values by itself. `has_clock` says
    whether the steps of torch's optimizer are timed.
    """

    def __init__(
        self,
        plan: JobPlan,
        target: Target,
        always: Collection[str] = (),
        metric: Metric | None = None,
        *,
        starts_ranks: bool,
        has_clock: bool,
    ) -> None:
        self._plan, self._target, self._metric = plan, target, metric
        self._always = frozenset(always)
        self.starts_ranks, self._has_clock = starts_ranks, has_clock

    def run_once(self, setting: Setting, writers: list[Writer]) -> ExitReport:
        """Runs the command to its end."""
        with self._started(setting, writers) as (command, _):
            while (report := command.poll()) is None:
                command.wait(0.5)
        return report

    @contextlib.contextmanager
    def start(
        self, setting: Setting, files: LaunchFiles, writers: list[Writer]
    ) -> Iterator[MeasuredCommand]:
        """A launch that is measured."""
        lines = _metric_lines(self._metric, files)
        writers = [*writers, *([lines.write] if lines else [])]
        with self._started(setting, writers) as (command, clock):
            yield MeasuredCommand(command, clock if self._has_clock else None, lines)

    def ddp_arguments(self, limit_s: float) -> dict[str, Value]:
        """The arguments that the script itself gives DistributedDataParallel, as knobs.

        Raises StudyError when it ends, or the time does, before it has made one.
        """
        with self._started(self._target.native, []) as (command, clock):
            return _ddp_arguments(command, clock, limit_s)

    @contextlib.contextmanager
    def _started(
        self, setting: Setting, writers: list[Writer]
    ) -> Iterator[tuple[Command, StepClock]]:
        clock = StepClock(_ddp_setting(self._target, setting, self._always))
        try:
            environ = own_environ() | {"PYTHONUNBUFFERED": "1"} | self._target.environ(setting)
            if self._has_clock:
                environ |= clock.environ(environ)
            plan = CommandPlan(self._plan.command, self._environs(environ))
            with Command(plan, writers) as command:
                yield command, clock
        finally:
            clock.close()

    def _environs(self, environ: dict[str, str]) -> tuple[Mapping[str, str], ...]:
        if not self.starts_ranks:
            return (environ,)
        slots, port = self._plan.slots, free_port(_LOOPBACK)
        return tuple(environ | torch_environ(slot, len(slots), _LOOPBACK, port) for slot in slots)


def _ddp_arguments(
    command: Command | MeasuredJob, clock: StepClock, limit_s: float
) -> dict[str, Value]:
    deadline_s = time.monotonic() + limit_s
    while not (made := clock.ddp_arguments()):
        report = command.poll()
        if report is not None and not (made := clock.ddp_arguments()):
            last = f"; its last line: {report.tail[-1].strip()}" if report.tail else ""
            reason = report.reason or "the command made no DistributedDataParallel"
            raise StudyError(f"{reason}, so there is nothing to tune{last}")
        if time.monotonic() > deadline_s:
            raise StudyError(f"no DistributedDataParallel was made within {limit_s:g} s")
        command.wait(0.05)
    return {DDP + name: value for name, value in made[0].items()}


def _ddp_setting(target: Target, setting: Setting, always: Collection[str]) -> dict[str, Any]:
    """DDP's arguments where they differ from the script's own; its two sizes go together."""
    changed = {
        name
        for name, value in setting.items()
        if name.startswith(DDP) and (value != target.native[name] or name in always)
    }
    if changed & DDP_SIZES:
        changed |= DDP_SIZES
    return {name.removeprefix(DDP): setting[name] for name in sorted(changed)}


def _metric_lines(metric: Metric | None, files: LaunchFiles) -> MetricLines | None:
    return None if metric is None else MetricLines(metric, files.log)
