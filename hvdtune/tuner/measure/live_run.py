"""Drives the running job: starts the script, proposes settings, takes blocks, notices the end.

One thread uses a LiveRun. Whatever goes wrong with a setting, the default is proposed again at
once; whatever ends the script, the next measurement starts it anew.
"""

import contextlib
import math
import statistics
from collections import deque
from collections.abc import Mapping
from typing import NoReturn

from hvdtune.core.config.knobs import Knob, Setting, read_declaration
from hvdtune.core.job.channel import (
    Closed,
    Declared,
    Formed,
    JobEvent,
    Lost,
    Rejected,
    StepDone,
)
from hvdtune.errors import HvdtuneError, StudyError
from hvdtune.tuner.measure.blocks import Block, BlockMeter, BlockShape, Order, PairTimes, shape_for
from hvdtune.tuner.measure.host_load import (
    HostProbe,
    HostSample,
    UnwatchedHost,
    interference_between,
)
from hvdtune.tuner.measure.pair_plan import PairCost
from hvdtune.tuner.measure.progress import Clock, Reporter
from hvdtune.tuner.measure.run import (
    RECENT_PAIRS,
    JobCrashed,
    JobInfo,
    MembershipChanged,
    RunningJob,
    RunOver,
    ScriptEnded,
    ScriptFailed,
    StartJob,
    TrialFailed,
)
from hvdtune.tuner.space.tune_options import TuneOptions

_POLL_S = 0.2
_BARREN_LAUNCHES = 3
# Steps are warm when so many take about as long as those before, or after so many seconds.
_WARM_STEPS = 10
_WARM_RATIO = 1.1
_WARM_MOST_S = 1.5
# Of slow steps fewer say how long they take.
_WINDOW_MOST_S = 5.0
# Where so many pairs do not fit the time that is left, blocks are shorter.
_LEAST_PAIRS_IN_TIME = 10


class LiveRun:
    """A Run that changes settings while the script goes on.

    Args:
        start_job: starts the script with the default setting.
        default: the reference of pairs that name none.
        first_launch: number of the first launch; a resumed study goes on counting.
        attached: the first launch runs already.
        host: tells what else happens while blocks are taken.
    """

    def __init__(
        self,
        start_job: StartJob,
        default: Setting,
        options: TuneOptions,
        clock: Clock,
        reporter: Reporter,
        *,
        first_launch: int = 0,
        host: HostProbe | None = None,
        attached: bool = False,
    ) -> None:
        self._start_job = start_job
        self._is_warm = attached
        self._default = default
        self._options = options
        self._clock = clock
        self._reporter = reporter
        self._version = 0
        self._lost = ""
        self._crashes = 0
        self._barren = 0
        self._may_launch = True
        self._has_failed = False  # the latest launch
        self.job: RunningJob | None = None
        self.launch = first_launch - 1
        self._launch_s = 0.0
        self.step_s = 0.0
        self._recent_pairs_s: deque[float] = deque(maxlen=RECENT_PAIRS)
        self._pace = 1.0  # what a pair takes, over one in which both settings are the default
        self._host = host or UnwatchedHost()
        self._counts_cpu = "cpu_time" in options.objectives
        self._pids: tuple[int, ...] = ()
        self.steps_taken = 0
        self.training_steps = 0
        self.job_info: JobInfo | None = None
        self._script_knobs: dict[str, Knob] = {}
        self._has_default = False

    @property
    def script_knobs(self) -> tuple[Knob, ...]:
        """The knobs that the script has declared so far, in its order."""
        return tuple(self._script_knobs.values())

    def take_default(self, default: Setting) -> None:
        """The default from here on: with the script's knobs, as far as declared."""
        self._default = default
        self._has_default = True

    @property
    def resumable(self) -> "LiveRun":
        """This run: its training goes on after the study."""
        return self

    def choose_shape(self) -> BlockShape:
        """Blocks of the length asked for, by the time of a step and the time that is left."""
        self.ensure_running()
        options = self._options
        shape = shape_for(self.step_s, options.blocks.seconds, options.blocks.min_steps)
        if shape.pair_s <= self._reporter.seconds_left / _LEAST_PAIRS_IN_TIME:
            return shape
        fewest = min(options.blocks.short_steps, options.blocks.min_steps)
        return shape_for(self.step_s, options.blocks.seconds, fewest)

    def cost(self, shape: BlockShape) -> PairCost:
        """The median of the latest pairs: a machine shared with others changes its pace."""
        recent = self._recent_pairs_s
        pair_s = statistics.median(recent) if recent else shape.pair_s * self._pace
        return PairCost(pair_s, self._launch_s)

    def expect_pace(self, factor: float) -> None:
        """What pairs were measured before has the pace of another setting."""
        self._pace *= factor
        self._recent_pairs_s = deque((s * factor for s in self._recent_pairs_s), RECENT_PAIRS)

    def check_affordable(self, seconds_left: float, calibrated: int) -> None:
        """Nothing to check: the script was to be run anyway."""

    def ensure_running(self) -> None:
        """Start the script unless it is running; returns when its steps are warm.

        Raises StudyError when it cannot be brought to step, or crashes again and again, and
        RunOver when it has ended and is not to be started again.
        """
        while self.job is None:
            with contextlib.suppress(JobCrashed, ScriptEnded):
                self._launch()

    def restart(self) -> None:
        """End the script and start it again."""
        self.stop()
        self.ensure_running()

    def stop(self) -> None:
        """End the script if it is running."""
        job, self.job = self.job, None
        if job is not None:
            job.terminate()

    def measure(
        self,
        setting: Setting,
        order: Order,
        shape: BlockShape,
        *,
        reference: Setting | None = None,
        hopeless: float = -math.inf,
    ) -> PairTimes:
        """One pair in the running launch; its first half where typical steps of that have a log
        ratio below `hopeless`."""
        began = self._clock.now()
        settings = {"A": self._default if reference is None else reference, "B": setting}
        try:
            pair = self._extended(PairTimes(order, ()), settings, shape, 2)
            if pair.first_half.typical_log_ratio < hopeless:
                pair = pair.first_half
            else:
                pair = self._extended(pair, settings, shape, len(order))
        except ScriptEnded:
            if self._may_launch:
                self._reporter.notice("the script has ended and is started again")
            raise
        self._crashes = self._barren = 0
        self._recent_pairs_s.append(self._clock.now() - began)
        return pair

    def _extended(
        self, pair: PairTimes, settings: Mapping[str, Setting], shape: BlockShape, blocks: int
    ) -> PairTimes:
        own = list(pair.blocks)
        for letter in pair.order[len(own) : blocks]:
            own.append(self._block(settings[letter], shape))
        return PairTimes(pair.order, tuple(own))

    def pause(self, seconds: float) -> None:
        """Let the script run on without measuring it."""
        self._clock.sleep(seconds)

    def detach(self, setting: Setting, *, revive: bool = False) -> RunningJob | None:
        """Propose the setting and let the script go on with it; None if it has ended.

        With `revive` a script that failed in the latest launch is started again, so that how it
        ends under this setting does not depend on which launch failed.
        """
        job, self.job = self.job, None
        report = None if job is None else job.poll()
        if report is not None:
            self._has_failed = report.returncode != 0
            job = None
        if job is None and revive and self._has_failed and self._may_launch:
            self._reporter.notice("the script failed in the latest launch and is started again")
            job = self._start_next()
        if job is not None:
            with contextlib.suppress(HvdtuneError):
                job.propose(setting)
        return job

    def attach(self, job: RunningJob) -> None:
        """Measure on the job that goes on; when it ends, that is the end."""
        self.job = job
        self._may_launch = False

    def run_for(self, setting: Setting, seconds: float) -> None:
        """Let the script take steps under a setting for so long, which tells their time.

        Raises RunOver when it ends.
        """
        try:
            self._propose(setting)
            if seconds > 0:
                self.step_s = statistics.median(self._take_steps(at_least=10, for_s=seconds))
        except ScriptEnded:
            raise RunOver("the script has ended") from None

    def _launch(self) -> None:
        if not self._may_launch:
            raise RunOver("the script has ended")
        self._may_launch = self._options.restarts
        self._barren += 1
        began = self._clock.now()
        self.job = self._start_next()
        self._await_formed()
        self.step_s = self._warm_up()
        self._launch_s = self._clock.now() - began

    def _start_next(self) -> RunningJob:
        self.launch += 1
        self._version = 0
        self._lost = ""
        self._has_failed = False
        self.training_steps = 0
        self._reporter.launched(self.launch)
        return self._start_job(self.launch)

    def _await_formed(self) -> None:
        limit_s = self._options.limits.form_s
        deadline = self._clock.now() + limit_s
        while True:
            event = self._event("calling hvd.init()")
            if isinstance(event, Formed):
                hosts = tuple(sorted({rank.host for rank in event.ranks}))
                self.job_info = JobInfo(len(event.ranks), hosts)
                self._pids = tuple(rank.pid for rank in event.ranks)
                return
            if self._clock.now() > deadline:
                self.stop()
                raise StudyError(f"the ranks did not form a job within {limit_s:g} s")

    def _warm_up(self) -> float:
        limit_s = self._options.limits.first_step_s
        waited_for = "an optimizer step"
        first = self._next_step(limit_s, waited_for)
        if first is None:
            self.stop()
            raise StudyError(
                f"the ranks formed a job but took no optimizer step within {limit_s:g} s; "
                "is the optimizer an hvd.DistributedOptimizer?"
            )
        latest = statistics.median(self._take_steps(_WARM_STEPS))
        before, spent_s = math.inf, 0.0
        while not self._is_warm and before / latest > _WARM_RATIO and spent_s < _WARM_MOST_S:
            spent_s += _WARM_STEPS * latest
            before, latest = latest, statistics.median(self._take_steps(_WARM_STEPS))
        self._is_warm = False
        return latest

    def _take_steps(self, at_least: int, for_s: float = 0.0) -> list[float]:
        times: list[float] = []
        at_most_s = max(10 * for_s, _WINDOW_MOST_S)
        while (len(times) < at_least or sum(times) < for_s) and (
            len(times) < 3 or sum(times) < at_most_s
        ):
            times.append(max(self._step().durations_ns) / 1e9)
        return times

    def _block(self, setting: Setting, shape: BlockShape) -> Block:
        self._propose(setting)
        meter = BlockMeter(self._version, shape)
        limit_s = max(self._options.limits.adopt_s, 20 * shape.step_s)
        deadline = self._clock.now() + limit_s
        before: HostSample | None = None
        while not meter.done:
            meter.add(self._step())
            if before is None and meter.settled:
                before = self._sample()
            if not meter.adopted and self._clock.now() > deadline:
                self._propose(self._default)
                raise TrialFailed(f"the ranks did not adopt the setting within {limit_s:g} s")
        after = self._sample()
        before = before or after
        interference = interference_between(before, after, meter.longest_step)
        return meter.block(interference, after.cpu_s - before.cpu_s)

    def _sample(self) -> HostSample:
        cpu_s = self._host.cpu_s(self._pids) if self._counts_cpu else 0.0
        return HostSample(self._clock.now(), self._host.counters(), cpu_s)

    def _propose(self, setting: Setting) -> None:
        assert self.job is not None
        try:
            self._version = self.job.propose(setting)
        except HvdtuneError as error:
            self._lost = self._lost or str(error)
            self._end("a step")

    def _step(self) -> StepDone:
        step = self._next_step(self._options.limits.stall_s, "a step")
        if step is None:
            self.stop()
            self._crashed(f"no step for {self._options.limits.stall_s:g} s", ())
        return step

    def _next_step(self, limit_s: float, waited_for: str) -> StepDone | None:
        deadline = self._clock.now() + limit_s
        while True:
            event = self._event(waited_for)
            if isinstance(event, StepDone):
                self.steps_taken += 1
                self.training_steps += 1
                return event
            if isinstance(event, Rejected) and event.version == self._version:
                self._propose(self._default)
                raise TrialFailed(f"the ranks refused the setting: {event.reason}")
            if self._clock.now() > deadline:
                return None

    def _event(self, waited_for: str) -> JobEvent | None:
        assert self.job is not None
        event = self.job.next_event(_POLL_S)
        if isinstance(event, Lost):
            self._lost = event.message
        elif isinstance(event, Declared):
            self._note_declared(read_declaration(event.knobs))
        elif isinstance(event, Closed) and self._options.is_elastic:
            self._await_other_ranks(waited_for)
        elif isinstance(event, Closed) and self._forms_anew():
            if waited_for == "a step":
                raise ScriptEnded  # this job of it: its next one has the setting of the start
        elif isinstance(event, Closed) or (event is None and self.job.poll() is not None):
            self._end(waited_for)
        return event

    def _note_declared(self, knob: Knob) -> None:
        known = self._script_knobs.setdefault(knob.name, knob)
        if known is knob and self._has_default and knob.name not in self._default:
            self._reporter.notice(
                f"knob {knob.name} was declared after the first step, so this study leaves it "
                f"at its default, {knob.default}; declare it before the first step"
            )
        elif known.choices != knob.choices:
            self._reporter.notice(
                f"launch {self.launch} declares {knob.name} with different values than "
                "earlier launches"
            )

    def _await_other_ranks(self, waited_for: str) -> NoReturn:
        """However long they take: the launcher, which waits for them, ends the job if need be."""
        assert self.job is not None
        while self.job.poll() is None:
            event = self.job.next_event(_POLL_S)
            if isinstance(event, Formed):
                raise MembershipChanged(event)
        self._end(waited_for)

    def _forms_anew(self) -> bool:
        assert self.job is not None
        deadline = self._clock.now() + self._options.limits.exit_s
        while self.job.poll() is None and self._clock.now() < deadline:
            if isinstance(self.job.next_event(_POLL_S), Formed):
                return True
        return False

    def _end(self, waited_for: str) -> NoReturn:
        assert self.job is not None
        deadline = self._clock.now() + self._options.limits.exit_s
        while (report := self.job.poll()) is None and self._clock.now() < deadline:
            self.job.next_event(_POLL_S)
        self.stop()
        if report is None or report.returncode != 0:
            what = "the script closed its connection but is still running"
            if report is not None:
                what = report.reason or f"the script failed with exit code {report.returncode}"
            lost = f" ({self._lost})" if self._lost and self._lost != what else ""
            tail = () if report is None else tuple(report.tail)
            self._crashed(what + lost, tail, 1 if report is None else report.returncode)
        if waited_for != "a step":
            raise StudyError(f"the script ended without {waited_for}")
        if self._barren >= _BARREN_LAUNCHES:
            raise StudyError(
                f"{self._barren} launches of the script in a row ended before a pair was measured; "
                "the script must take more steps"
            )
        raise ScriptEnded

    def _crashed(self, reason: str, tail: tuple[str, ...], exit_code: int = 1) -> NoReturn:
        self._crashes += 1
        self._has_failed = True
        self._reporter.notice(f"launch {self.launch}: {reason}", tail)
        last = f"; its last line: {tail[-1].strip()}" if tail else ""
        if self.step_s == 0.0:
            raise ScriptFailed(f"{reason} before it could be measured{last}", exit_code)
        if self._crashes >= self._options.limits.max_crashes:
            times = f"{reason}, {self._crashes} times in a row{last}"
            raise ScriptFailed(times, exit_code)
        raise JobCrashed(reason, exit_code)
