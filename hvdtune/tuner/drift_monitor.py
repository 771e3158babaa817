"""After the verdict: goes on proving what is in use, and notices that the training has changed.

A setting that is in use without proof is compared with the default now and then, until it is proved
in this launch, or no longer likely to be better and the default comes back.

What was measured was measured of the training as it was. After a change the setting is measured
anew: it beats the default, or it stays as most likely better and hardly slower, or the default
comes back and a few other settings are tried, of which one is used if it is proved. All of it goes
one pair at a time, with ten times as long under the good setting in between.
"""

import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import optuna
from optuna.trial import TrialState

from hvdtune.core.config.knobs import Setting
from hvdtune.core.job.channel import Closed, Formed, JobEvent, StepDone
from hvdtune.errors import StudyError
from hvdtune.plural import counted
from hvdtune.tuner.controller import AfterVerdict
from hvdtune.tuner.measure.blocks import BlockShape, shape_for
from hvdtune.tuner.measure.run import MembershipChanged, RunOver, TrialFailed, membership_of
from hvdtune.tuner.results.run_files import DRIFT_FILE
from hvdtune.tuner.space.search_space import describe
from hvdtune.tuner.stats.choice import is_better_bet
from hvdtune.tuner.stats.confidence_sequence import interval_at_any_time
from hvdtune.tuner.stats.cusum import Change, Drift
from hvdtune.tuner.stats.estimates import estimate, signed_rank_p, to_percent
from hvdtune.tuner.stats.posterior import Posterior, posterior_of

_POLL_S: Final = 0.5
_REST: Final = 10.0
# What passes within a minute is no change of the training.
_SAMPLE_S: Final = 2.0
_LEAST_SAMPLE_STEPS: Final = 64
_TRIALS: Final = 12
_PAIRS_PER_TRIAL: Final = 4
# Stricter than a verdict over several launches: this one has a single launch and looks twice.
_CONFIDENCE: Final = 0.99


@dataclass(frozen=True)
class _Proof:
    gain_percent: float
    ci_percent: tuple[float, float]
    pairs: int
    is_proved: bool
    is_chosen: bool  # proved, or most likely better than the default and hardly slower

    def __str__(self) -> str:
        low, high = self.ci_percent
        return (
            f"{self.gain_percent:+.1f} % [{low:.1f}, {high:.1f}] 99 % CI in this launch, "
            f"{counted(self.pairs, 'pair')}"
        )


def watch(training: AfterVerdict, changed: Callable[[Setting], None]) -> None:
    """Watches to the end of the job. `changed` is told every setting that becomes the good one.

    While an elastic job has other ranks than those of the verdict nothing is looked at.
    """
    job, membership = training.job, training.verdict.membership
    watcher = _Watcher(training, changed)
    is_watched = True
    while True:
        event: JobEvent | None = job.next_event(_POLL_S)
        if event is None and job.poll() is not None:
            return
        if isinstance(event, StepDone) and is_watched:
            try:
                if not watcher.look(max(event.durations_ns) / 1e9):
                    return
            except MembershipChanged as change:
                event = change.formed
        if membership and isinstance(event, Formed | Closed):
            is_watched = isinstance(event, Formed) and membership_of(event) == membership
            watcher.begin()


def _sample_steps(shape: BlockShape) -> int:
    return max(_LEAST_SAMPLE_STEPS, math.ceil(_SAMPLE_S / shape.step_s))


class _Watcher:
    def __init__(self, training: AfterVerdict, changed: Callable[[Setting], None]) -> None:
        self._training = training
        self._changed = changed
        self._runner, self._run = training.context.runner, training.run
        self._good: Setting = training.verdict.setting
        self._is_proved = training.verdict.improved
        self._prior = None if self._is_proved else training.prior
        self._probes: list[float] = []
        self._since_probe_s = 0.0
        self.begin()

    def begin(self) -> None:
        """The training's pace is learnt from here on."""
        self._drift = Drift(_sample_steps(self._training.context.calibration.shape))

    def look(self, step_s: float) -> bool:
        """Takes a step's time. False when the job has ended meanwhile."""
        if not self.probe_when_due(step_s):
            return False
        change = self._drift.add(step_s)
        if change is None:
            return True
        goes_on = self.examine(change)
        self.begin()
        return goes_on

    def probe_when_due(self, step_s: float) -> bool:
        """Compares an unproved setting with the default once more, if it is time for that.

        False when the job has ended meanwhile.
        """
        prior, shape = self._prior, self._training.context.calibration.shape
        if prior is None or self._good == self._runner.default:
            return True
        self._since_probe_s += step_s
        share = self._training.context.options.probe_share
        if share * self._since_probe_s < (1 - share) * self._run.cost(shape).pair_s or share == 0:
            return True
        self._since_probe_s = 0.0
        self._run.attach(self._training.job)
        try:
            text = self._probe(prior, shape)
        except RunOver:
            return False
        except StudyError as error:
            self._adopt(self._runner.default)
            text = f"{error}; the default is used"
        if text:
            self._prior = None
            self._runner.reporter.notice(text)
            self._write(None, text)
        return self._training.job.poll() is None

    def _probe(self, prior: Posterior, shape: BlockShape) -> str:
        """What is settled by one more pair, "" while nothing is."""
        setting = describe(self._good, self._runner.default)
        try:
            self._probes.append(self._runner.pair("probe", self._good, shape).log_ratio)
        except TrialFailed as failure:
            self._adopt(self._runner.default)
            return f"{setting}: {failure}: back to the default"
        self._rest(0.0)
        found = interval_at_any_time(self._probes)
        basis = f"anytime-valid 95 % CI, {counted(found.n, 'pair')}"
        if found.low > 0:
            self._is_proved = True
            gain, low, high = (to_percent(each) for each in (found.mean, found.low, found.high))
            return (
                f"{setting}, proved in this launch: {gain:+.1f} % [{low:.1f}, {high:.1f}] {basis}"
            )
        if is_better_bet(prior.given(estimate(self._probes))):
            return ""
        self._adopt(self._runner.default)
        return (
            f"{setting} is unlikely to be better ({counted(found.n, 'pair')}): back to the default"
        )

    def examine(self, change: Change) -> bool:
        """Opens the study again. False when the job has ended meanwhile."""
        pace = f"steps take {change.factor:.2f} times as long as before"
        self._runner.reporter.notice(f"{pace}: measuring the setting again")
        self._run.attach(self._training.job)
        self._prior = None  # of the training as it was
        try:
            shape = self._shape()
            said = [self._check(shape), self._search(shape)]
        except RunOver:
            return False
        except StudyError as error:
            self._adopt(self._runner.default)
            said = [f"{error}; the default is used"]
        text = "; ".join(filter(None, said))
        self._runner.reporter.notice(f"after the change: {text}")
        self._write(change, text)
        return self._training.job.poll() is None

    def _shape(self) -> BlockShape:
        options = self._training.context.options
        self._rest(0.5)
        return shape_for(self._run.step_s, options.blocks.seconds, options.blocks.min_steps)

    def _check(self, shape: BlockShape) -> str:
        if self._good == self._runner.default:
            return "the default was in use"
        setting = describe(self._good, self._runner.default)
        proof = self._prove(self._good, shape)
        if proof is None or not proof.is_chosen:
            self._adopt(self._runner.default)
            why = f"is unlikely to be better ({proof})" if proof else "makes the script fail"
            return f"{setting} {why}: back to the default"
        was_proved, self._is_proved = self._is_proved, proof.is_proved
        if proof.is_proved:
            return f"{setting} {'still beats' if was_proved else 'beats'} the default ({proof})"
        return f"{setting} stays in use, not yet proved ({proof})"

    def _search(self, shape: BlockShape) -> str:
        """The best of a few trials is used if it is proved; its gain is against the default."""
        if self._good != self._runner.default:
            return ""
        best: tuple[float, Setting] | None = None
        study = self._fresh_study()
        for _ in range(_TRIALS):
            trial = study.ask()
            setting = self._training.space.suggest(trial)
            values = self._pairs(setting, shape, _PAIRS_PER_TRIAL)
            if values is None:
                study.tell(trial, state=TrialState.FAIL)
                continue
            mean = estimate(values).mean
            study.tell(trial, mean)
            if setting != self._runner.default and mean > (best[0] if best else 0.0):
                best = mean, setting
        proof = None if best is None else self._prove(best[1], shape)
        if best is None or proof is None or not proof.is_proved:
            return f"{_TRIALS} other settings were tried; none is proved better"
        self._adopt(best[1])
        self._is_proved = True
        return f"{describe(best[1], self._runner.default)} is used ({proof})"

    def _fresh_study(self) -> optuna.Study:
        """A study without earlier trials; only the old winner is queued."""
        study = optuna.create_study(
            direction="maximize", sampler=optuna.samplers.TPESampler(n_startup_trials=_TRIALS // 2)
        )
        if self._training.verdict.candidate is not None:
            old = self._training.space.params_of(self._training.verdict.candidate)
            study.enqueue_trial(old)
        return study

    def _prove(self, setting: Setting, shape: BlockShape) -> _Proof | None:
        pairs = self._training.context.options.proof.min_pairs
        values = self._pairs(setting, shape, pairs)
        if values is None:
            return None
        own = estimate(values, _CONFIDENCE)
        floor = self._training.context.calibration.floor(own.n)
        proved = own.low > 0 and own.mean > floor and signed_rank_p(values) < 1 - _CONFIDENCE
        interval = to_percent(own.low), to_percent(own.high)
        chosen = proved or is_better_bet(posterior_of(estimate(values)))
        return _Proof(own.gain_percent, interval, own.n, proved, chosen)

    def _pairs(self, setting: Setting, shape: BlockShape, count: int) -> list[float] | None:
        """Log ratios of fresh pairs, fewer of a setting that is far slower; None if it fails."""
        values: list[float] = []
        try:
            while len(values) < count:
                pair = self._runner.pair("drift", setting, shape)
                values.append(pair.log_ratio)
                self._rest(_REST * self._run.cost(shape).pair_s)
                if len(values) >= 2 and estimate(values).high < 0:
                    break
        except TrialFailed:
            return None
        return values

    def _rest(self, seconds: float) -> None:
        self._run.run_for(self._good, seconds)

    def _adopt(self, setting: Setting) -> None:
        self._good = setting
        self._changed(setting)
        self._rest(0.0)

    def _write(self, change: Change | None, text: str) -> None:
        path = self._training.run_dir / DRIFT_FILE
        line = {
            "t_unix": time.time(),
            "factor": None if change is None else change.factor,
            "steps": None if change is None else change.steps,
            "setting": dict(self._good),
            "text": text,
        }
        try:
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        except OSError as error:
            self._runner.reporter.notice(f"cannot write {path}: {error.strerror}")
