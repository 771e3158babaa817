"""One pair, measured and on disk."""

import contextlib
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from hvdtune.core.config.knobs import Setting
from hvdtune.errors import StudyError, TraceFormatError
from hvdtune.tuner.measure.blocks import Block, BlockShape, Order, PairTimes, log_ratio, orders
from hvdtune.tuner.measure.outliers import OutlierDetector
from hvdtune.tuner.measure.progress import Phase, Reporter
from hvdtune.tuner.measure.run import Run, ScriptEnded, TrialFailed
from hvdtune.tuner.measure.trace_files import Traces
from hvdtune.tuner.space.objectives import Objective
from hvdtune.tuner.space.search_space import key_of
from hvdtune.tuner.stats.estimates import CONFIDENCE, Estimate, Noise, estimate, pooled
from hvdtune.tuner.storage.in_use import SEARCH_PHASES, InUse, in_use_last
from hvdtune.tuner.storage.pair_log import Pair, PairLog

# Of a setting that is so much slower half a pair says enough.
_HOPELESS = -0.35
_MOST_REPEATS = 2
_SPARE_REPEATS = 5
_TOLD_REPEATS = 5
# Ranks write what they have recorded about twenty times a second.
_TRACE_WAIT_S = 0.1
_TRACE_TRIES = 30
# Objectives below this per step cannot be told from nothing.
_SMALLEST_S = 1e-7


class PairRunner:
    """Measures settings and remembers every pair.

    They are compared with the default. In the search and the race it is what is in use, see `use`.

    Pairs of a study that was interrupted count: a phase asks for the pairs it lacks. A pair in
    whose blocks something else happened is measured again: up to twice in a row, and in all about
    as often as there are pairs.

    Args:
        traces: needed for objectives that are read from them.
        steps: the study may take so many, None for any number.
        failed: settings that could not be measured when the study was run before.
        last_failure: why the last of them could not.
        note_failed: is told of each that cannot, and why, so that the study remembers it.
    """

    def __init__(
        self,
        run: Run,
        log: PairLog,
        reporter: Reporter,
        default: Setting,
        *,
        seed: int = 0,
        objectives: Sequence[Objective] = ("step_time",),
        traces: Traces | None = None,
        steps: int | None = None,
        failed: Sequence[Setting] = (),
        last_failure: str = "",
        note_failed: Callable[[Setting, str], None] | None = None,
    ) -> None:
        self.run = run
        self.log = log
        self.reporter = reporter
        self.default = default
        self._seed = seed
        self.objectives = tuple(objectives)
        self._traces = traces
        self._steps = steps
        self._earlier_steps = sum(pair.steps for pair in log.pairs)
        self._outliers = OutlierDetector()
        # Of a pair read by typical steps; calibration finds it.
        self.search_noise: Noise | None = None
        # Settings that could not be measured, whatever they promised before.
        self.failed = list(failed)
        self.last_failure = last_failure
        self._note_failed = note_failed
        # Of what failed it is not clear which of the two it was: see `_fail`.
        self._better: InUse | None = None
        if (last := in_use_last(log.pairs)) is not None and not self.failed:
            self.use(last)

    @property
    def in_use(self) -> InUse:
        """What trials are compared with, and the script runs under meanwhile."""
        return self._better or InUse(self.default)

    def use(self, better: InUse | None) -> None:
        """Compare trials with this setting from here on, with the default if there is none."""
        before = self.in_use.log_ratio
        self._better = better
        self.run.expect_pace(math.exp(before - self.in_use.log_ratio))

    @property
    def _reads_steps(self) -> bool:
        return self.objectives[0] in ("step_time", "samples_per_s")

    @property
    def set_aside(self) -> int:
        """Pairs that were measured again."""
        return sum(bool(pair.set_aside) for pair in self.log.pairs)

    @property
    def steps_left(self) -> int | None:
        """Steps that the study may still take, None if their number is not limited."""
        if self._steps is None:
            return None
        return max(0, self._steps - self._earlier_steps - self.run.steps_taken)

    @property
    def seconds_left(self) -> float:
        """The seconds until the time or the steps of the study are used up."""
        left_s = self.reporter.seconds_left
        return left_s if self.steps_left is None else min(left_s, self.steps_left * self.run.step_s)

    @property
    def traces(self) -> Sequence[Path]:
        """Raw traces of the running launch; empty if nothing is recorded."""
        return self._traces(self.run.launch) if self._traces else ()

    def log_ratios(self, phase: Phase, setting: Setting) -> list[float]:
        """Log ratios, by all steps, of the pairs of this setting measured in this phase so far."""
        return [pair.log_ratio for pair in self.log.of(phase, setting)]

    def search_log_ratios(self, phase: Phase, setting: Setting) -> list[float]:
        """The same by typical steps, for the search."""
        return [pair.search_log_ratio for pair in self.log.of(phase, setting)]

    def restart(self) -> None:
        """Make sure that the next pair is measured in a launch that has had none.

        That may be the one that runs: a study that is continued has started it.
        """
        if any(pair.launch == self.run.launch for pair in self.log.pairs):
            self.run.restart()

    def pair(
        self, phase: Phase, setting: Setting, shape: BlockShape, trial: int | None = None
    ) -> Pair:
        """Measure one more pair, starting the script again when it ends meanwhile.

        Raises TrialFailed when the setting cannot be measured, StudyError when the script cannot.
        """
        repeats = 0
        while True:
            try:
                pair, again = self._once(
                    phase, setting, shape, trial, may_repeat=repeats < _MOST_REPEATS
                )
            except TrialFailed as failure:
                self._fail(phase, setting, str(failure))
                raise
            self.log.append(pair)
            if not again:
                break
            repeats += 1
            self._tell_of_repeat(self.set_aside, pair.set_aside)
        self.reporter.measured(setting, self._so_far(phase, setting), 1e3 / pair.setting_step_ms)
        return pair

    def _fail(self, phase: Phase, setting: Setting, reason: str) -> None:
        self.failed.append(setting)
        self.last_failure = reason
        if self._note_failed is not None:
            self._note_failed(setting, reason)
        # Which of the two has failed may not be clear.
        if phase in SEARCH_PHASES and self._better is not None:
            self.use(None)
            self.reporter.uses(None, "trials are compared with the default again")

    def _tell_of_repeat(self, count: int, reason: str) -> None:
        if count <= _TOLD_REPEATS:
            self.reporter.notice(f"a pair is measured again: {reason}")
        elif count % 10 == 0:  # on a busy machine every other line would say so
            self.reporter.notice(
                f"{count} pairs measured again so far; reason for this one: {reason}"
            )

    def _so_far(self, phase: Phase, setting: Setting) -> Estimate:
        """As the table of trials reads pairs: two alone would say next to nothing of their
        spread."""
        if phase in SEARCH_PHASES and self.search_noise is not None:
            return pooled(self.search_log_ratios(phase, setting), self.search_noise, CONFIDENCE)
        return estimate(self.log_ratios(phase, setting))

    def _once(
        self,
        phase: Phase,
        setting: Setting,
        shape: BlockShape,
        trial: int | None,
        *,
        may_repeat: bool,
    ) -> tuple[Pair, bool]:
        index = len(self.log.of(phase, setting))
        order = orders(f"{self._seed}:{phase}:{key_of(setting)}:{index // 2}")[index % 2]
        reference = self._reference(phase, setting)
        times: PairTimes | None = None
        while times is None:
            self.run.ensure_running()
            with contextlib.suppress(ScriptEnded):
                times = self.run.measure(
                    setting,
                    order,
                    shape,
                    reference=reference.setting,
                    hopeless=_HOPELESS if phase == "search" else -math.inf,
                )
        disturbance = self._outliers.detect(times.order, times.blocks)
        self._learn(setting, times.order, times.blocks)
        again = disturbance is not None and may_repeat and self._may_set_aside()
        first, *others = self._ratios(times)
        pair = Pair(
            launch=self.run.launch,
            phase=phase,
            trial=trial,
            setting=dict(setting),
            reference=dict(reference.setting),
            log_ratio=first,
            setting_step_ms=1e3 * times.setting_step_s,
            reference_step_ms=1e3 * times.reference_step_s,
            steps=times.steps,
            order=times.order,
            t_unix=time.time(),
            further=dict(zip(self.objectives[1:], others, strict=True)),
            set_aside=disturbance.reason if disturbance is not None and again else "",
            at_fault="" if disturbance is None else disturbance.letters,
            typical_log_ratio=times.typical_log_ratio if self._reads_steps else None,
            reference_log_ratio=reference.log_ratio,
        )
        return pair, again

    def _reference(self, phase: Phase, setting: Setting) -> InUse:
        searches = phase in SEARCH_PHASES and setting != self.in_use.setting
        return self.in_use if searches else InUse(self.default)

    def _learn(self, setting: Setting, order: Order, blocks: Sequence[Block]) -> None:
        own = "AB" if setting == self.default else "A"
        each = zip(order, blocks, strict=True)
        self._outliers.add(block.interference for letter, block in each if letter in own)

    def _may_set_aside(self) -> bool:
        kept = len(self.log.pairs) - self.set_aside
        return self.set_aside < _SPARE_REPEATS + kept

    def _ratios(self, times: PairTimes) -> list[float]:
        return [self._ratio(objective, times) for objective in self.objectives]

    def _ratio(self, objective: Objective, times: PairTimes) -> float:
        if objective == "cpu_time":
            used = [block.cpu_s / block.steps for block in times.blocks]
        elif objective == "exposed_communication":
            used = self._exposed_s(times.blocks)
        else:
            return times.log_ratio
        return log_ratio(times.order, [max(value, _SMALLEST_S) for value in used])

    def _exposed_s(self, blocks: Sequence[Block]) -> list[float]:
        if not self.traces:
            raise StudyError(
                "cannot measure exposed communication: no timeline is recorded (-o FOLDER)"
            )
        from hvdtune.tuner.measure.step_tensors import exposed_s  # pandas takes a second

        for _ in range(_TRACE_TRIES):
            try:
                exposed = exposed_s(self.traces, [block.numbers for block in blocks])
                if not any(exposed):
                    raise StudyError(
                        "cannot measure exposed communication: steps contain no communication"
                    )
                return [value / block.steps for value, block in zip(exposed, blocks, strict=True)]
            except TraceFormatError as error:
                problem = error
                self.run.pause(_TRACE_WAIT_S)
        raise StudyError(f"cannot measure exposed communication: {problem}") from problem
