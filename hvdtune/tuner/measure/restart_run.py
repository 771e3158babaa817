"""Measures by restarting: every block is a launch of the command, a pair is two launches.

For what a process takes in once, when it starts: other runtimes, and hvdtune's knobs that cannot
change in a live run. A launch has a level of its own, so pairs of launches are independent, and
two launches (AB or BA, the order drawn) say per second what four (ABBA) say. A drift goes into the
spread of the pairs and, since the orders alternate, not into their mean.

One thread uses a RestartRun.
"""

import dataclasses
import math
import statistics
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from hvdtune.core.config.knobs import Setting
from hvdtune.core.job.channel import StepDone
from hvdtune.errors import StudyError
from hvdtune.plural import counted
from hvdtune.tuner.measure.blocks import Block, BlockMeter, BlockShape, Order, PairTimes, shape_for
from hvdtune.tuner.measure.host_load import (
    HostProbe,
    HostSample,
    UnwatchedHost,
    interference_between,
)
from hvdtune.tuner.measure.pair_plan import PairCost, as_budget, least_pairs, least_s
from hvdtune.tuner.measure.progress import Clock, Reporter
from hvdtune.tuner.measure.run import (
    RECENT_PAIRS,
    ExitStatus,
    JobCrashed,
    JobInfo,
    ScriptFailed,
    TrialFailed,
)
from hvdtune.tuner.space.tune_options import TuneOptions

_POLL_S = 0.1
_WARM_UP_STEPS = 10
_TOO_SLOW = 4.0
# The first launch of a command reads from disk what later ones find in memory.
_FIRST_IS_SLOWER = 2.0
# The budget that is asked for is not to be too short again.
_MARGIN = 1.1


class RunningCommand(Protocol):
    """A started command; `terminate` returns when none of its processes is left.

    `steps` has the steps not yet taken, each as nanoseconds by rank; `wall_s` is the time from
    the start to the end of the last process, so far while one runs; `wait` returns early when a
    process ends. `measured_by` says in words where the steps come from, `without_steps` what is
    wrong where none came, "" where the wall time will do.
    """

    @property
    def measured_by(self) -> str: ...
    @property
    def without_steps(self) -> str: ...
    @property
    def wall_s(self) -> float: ...
    def steps(self) -> Sequence[tuple[int, ...]]: ...
    def wait(self, timeout_s: float) -> None: ...
    def poll(self) -> ExitStatus | None: ...
    def terminate(self) -> None: ...


# Starts the command under a setting; the number counts the launches of the study.
StartCommand = Callable[[Setting, int], RunningCommand]


@dataclass(frozen=True)
class ByRestarting:
    """How a command is started that is measured by restarting.

    `job_info` tells its ranks, None where nobody knows them.
    """

    start: StartCommand
    job_info: JobInfo | None = None


class RestartRun:
    """A Run whose blocks are launches of the command.

    Args:
        by: how it is started.
        default: the reference of every pair.
        first_launch: number of the first launch; a resumed study goes on counting.
        host: tells what else happens while blocks are taken.
    """

    def __init__(
        self,
        by: ByRestarting,
        default: Setting,
        options: TuneOptions,
        clock: Clock,
        reporter: Reporter,
        *,
        first_launch: int = 0,
        host: HostProbe | None = None,
    ) -> None:
        self._start = by.start
        self._host = host or UnwatchedHost()
        self._default = default
        self._options = options
        self._clock = clock
        self._reporter = reporter
        self._command: RunningCommand | None = None
        self._shape: BlockShape | None = None
        self._has_steps = False
        self._failures = 0
        self._recent_pairs_s: deque[float] = deque(maxlen=RECENT_PAIRS)
        self.launch = first_launch - 1
        self.job_info = by.job_info
        self._launch_wall_s = 0.0  # of the first, unmeasured one
        self.measured_by = ""
        self._without_steps = ""
        self.steps_taken = 0

    @property
    def step_s(self) -> float:
        """A step of the first launch, or all of it where the wall time is what is measured."""
        return 0.0 if self._shape is None else self._shape.step_s

    @property
    def training_steps(self) -> int:
        """Always 0: no launch goes on after the study."""
        return 0

    @property
    def resumable(self) -> None:
        """Always None: no launch goes on after the study."""
        return None

    def choose_shape(self) -> BlockShape:
        """The part of a launch that is measured, which the first launch fixes."""
        self.ensure_running()
        assert self._shape is not None
        return self._shape

    def cost(self, shape: BlockShape) -> PairCost:
        """The median of the latest pairs, which contain their launches."""
        return PairCost(self._pair_s() or shape.pair_s, launch_s=0.0)

    def expect_pace(self, factor: float) -> None:
        """Nothing to expect: launches are most of a pair, and none runs under a better setting."""

    def check_affordable(self, seconds_left: float, calibrated: int) -> None:
        """Raise StudyError if launches take so long that the time left cannot pay for an answer."""
        likely_s = 2 * self._launch_wall_s
        least_pair_s = self._pair_s() or likely_s / _FIRST_IS_SLOWER
        if least_s(self._options, least_pair_s, calibrated) <= seconds_left:
            return
        pair_s = self._pair_s() or likely_s
        calibration, trial, verification = least_pairs(self._options)
        tried = f"{trial} of one other setting, " if trial else ""
        needed_s = _MARGIN * (self._launch_wall_s + least_s(self._options, pair_s))
        raise StudyError(
            f"the time budget is too short: a pair of launches takes {pair_s:.3g} s, and a study "
            f"needs at least {calibration + trial + verification} pairs ({calibration} of the "
            f"default against itself, {tried}{verification} to verify it); set --time-budget to "
            f"{as_budget(needed_s)} or more"
        )

    def _pair_s(self) -> float | None:
        return statistics.median(self._recent_pairs_s) if self._recent_pairs_s else None

    def ensure_running(self) -> None:
        """Launch the default once, unmeasured, to see what can be measured and how long it takes.

        Raises StudyError when the command fails or says nothing within the time budget.
        """
        while self._shape is None:
            probe = _Probe(self._options)
            try:
                wall_s, ended = self._run(self._default, probe.add, self._reporter.seconds_left)
            except JobCrashed as failure:
                self._count_failure(failure)
                continue
            self._failures = 0
            self._launch_wall_s = wall_s
            self._has_steps = probe.count > 0
            if not self._has_steps and self._without_steps:
                late = "" if ended else " (the command was stopped at the end of the time budget)"
                raise StudyError(self._without_steps + late)
            if not self._has_steps and not ended:
                raise StudyError(
                    "one launch takes longer than the whole time budget; increase "
                    "--time-budget, or specify the step times in its output with --metric-regex"
                )
            if not self._has_steps:
                self.measured_by = "the wall time of the command"
                self._shape = BlockShape(1, 0, wall_s, self.measured_by)
            else:
                shape = probe.shape(ended=ended)
                self._shape = dataclasses.replace(shape, source=self.measured_by)
            self._reporter.notice(
                f"measured by {self.measured_by}{_how_much(self._shape)}; a launch takes "
                f"{wall_s:.3g} s{self._enough_for(2 * wall_s)}"
            )

    def _enough_for(self, pair_s: float) -> str:
        if not self._reporter.has_limit:
            return ""
        pairs = int(self._reporter.seconds_left / max(pair_s, 1e-9))
        what = counted(pairs, "pair")
        return f", and the time left is enough for {what} of launches"

    def restart(self) -> None:
        """Nothing to do: every block is a launch of its own."""

    def stop(self) -> None:
        """End the launch that runs, if any."""
        command, self._command = self._command, None
        if command is not None:
            command.terminate()

    def detach(self, setting: Setting, *, revive: bool = False) -> None:
        """End the command: no launch goes on after the study."""
        del setting, revive
        self.stop()

    def measure(
        self,
        setting: Setting,
        order: Order,
        shape: BlockShape,
        *,
        reference: Setting | None = None,
        hopeless: float = -math.inf,
    ) -> PairTimes:
        """One pair of launches; of the order its first half counts, whatever is `hopeless`.

        Raises TrialFailed (give this setting up) or StudyError.
        """
        del hopeless, reference
        self.ensure_running()
        began = self._clock.now()
        order = "AB" if order[0] == "A" else "BA"
        blocks = {
            letter: self._reference(shape) if letter == "A" else self._block(setting, shape)
            for letter in order
        }
        self._recent_pairs_s.append(self._clock.now() - began)
        return PairTimes(order, tuple(blocks[letter] for letter in order))

    def pause(self, seconds: float) -> None:
        """Wait."""
        self._clock.sleep(seconds)

    def _reference(self, shape: BlockShape) -> Block:
        while True:
            try:
                block = self._block(self._default, shape)
            except TrialFailed as failure:
                # The setting that is being compared is not to blame.
                self._count_failure(failure)
            else:
                self._failures = 0
                return block

    def _block(self, setting: Setting, shape: BlockShape) -> Block:
        meter = BlockMeter(0, shape)
        before = self._sample()
        taken = 0

        def add(step: StepDone) -> bool:
            nonlocal before, taken
            taken += 1
            if not meter.settled:
                before = self._sample()
            meter.add(step)
            return meter.done

        limit_s = math.inf if self._has_steps else _TOO_SLOW * shape.step_s + 10.0
        wall_s, ended = self._run(setting, add, limit_s)
        self.steps_taken += max(1, taken)
        interference = interference_between(before, self._sample(), meter.longest_step)
        if not self._has_steps:
            if not ended:
                raise TrialFailed(
                    f"the command takes more than {_TOO_SLOW:g} times as long as the reference"
                )
            return Block(1, wall_s, interference)
        if not meter.done and taken < shape.settle_steps + max(1, shape.steps // 2):
            wanted = shape.settle_steps + shape.steps
            raise TrialFailed(f"the command ended after {taken} of {wanted} steps")
        return meter.block(interference)

    def _sample(self) -> HostSample:
        return HostSample(self._clock.now(), self._host.counters(), 0.0)

    def _run(
        self, setting: Setting, enough: Callable[[StepDone], bool], limit_s: float
    ) -> tuple[float, bool]:
        """One launch, ended when it has given enough: wall time, and whether it ended itself."""
        self.launch += 1
        self._reporter.launched(self.launch)
        self._command = command = self._start(setting, self.launch)
        count, last_s = 0, self._clock.now()
        try:
            while True:
                # Asked before the steps are taken, so that the last ones are not missed.
                report = command.poll()
                for durations_ns in command.steps():
                    count, last_s = count + 1, self._clock.now()
                    if enough(StepDone(count, 0, durations_ns, 0)):
                        return command.wall_s, False
                if report is not None:
                    self._check(report)
                    return command.wall_s, True
                if command.wall_s > limit_s:
                    return command.wall_s, False
                self._check_stall(count, self._clock.now() - last_s)
                command.wait(_POLL_S)
        finally:
            self.measured_by = self.measured_by or command.measured_by
            self._without_steps = command.without_steps
            self.stop()

    def _check(self, report: ExitStatus) -> None:
        if report.returncode != 0:
            reason = report.reason or f"the command failed with exit code {report.returncode}"
            self._reporter.notice(f"launch {self.launch}: {reason}", tuple(report.tail))
            last = f"; its last line: {report.tail[-1].strip()}" if report.tail else ""
            raise JobCrashed(f"{reason}{last}", report.returncode)

    def _check_stall(self, count: int, silent_s: float) -> None:
        limit_s = self._options.limits.stall_s if count else self._options.limits.first_step_s
        if self._has_steps and silent_s > limit_s:
            raise TrialFailed(f"the command took no step for {limit_s:g} s")

    def _count_failure(self, failure: TrialFailed) -> None:
        self._failures += 1
        if self._failures >= (1 if self._shape is None else self._options.limits.max_crashes):
            times = "" if self._failures == 1 else f", {self._failures} times in a row"
            what = f"cannot measure the reference setting{times}: {failure}"
            if isinstance(failure, JobCrashed):
                raise ScriptFailed(what, failure.exit_code)
            raise StudyError(what)


class _Probe:
    """Takes steps until there are as many as a launch is going to need."""

    def __init__(self, options: TuneOptions) -> None:
        self._options = options
        self._times_s: list[float] = []

    @property
    def count(self) -> int:
        return len(self._times_s)

    def add(self, step: StepDone) -> bool:
        self._times_s.append(max(step.durations_ns) / 1e9)
        if self.count % _WARM_UP_STEPS:
            return False
        wanted = self._wanted()
        return self.count >= wanted.settle_steps + wanted.steps

    def shape(self, *, ended: bool) -> BlockShape:
        """A command that ends before gives a third of its steps to warming up, at most."""
        wanted = self._wanted()
        if not ended or self.count >= wanted.settle_steps + wanted.steps:
            return wanted
        settle = min(wanted.settle_steps, self.count // 3)
        return dataclasses.replace(wanted, steps=self.count - settle, settle_steps=settle)

    def _wanted(self) -> BlockShape:
        step_s = statistics.median(self._times_s[self.count // 2 :])
        shape = shape_for(step_s, self._options.blocks.seconds, self._options.blocks.min_steps)
        return dataclasses.replace(shape, settle_steps=max(shape.settle_steps, _WARM_UP_STEPS))


def _how_much(shape: BlockShape) -> str:
    if shape.settle_steps == 0 and shape.steps == 1:
        return f", {shape.step_s:.3g} s"
    return f": {shape.steps} of each launch, after {shape.settle_steps} warm-up steps"
