"""One pair, measured and on disk."""

import time
from collections.abc import Sequence

from hvdtune.core.knobs import Setting
from hvdtune.tuner.live import LiveRun, ScriptEnded
from hvdtune.tuner.measure import BlockShape, PairTimes, orders
from hvdtune.tuner.pairs import Pair, PairLog
from hvdtune.tuner.progress import Phase, Reporter
from hvdtune.tuner.restart import RestartRun
from hvdtune.tuner.space import key_of
from hvdtune.tuner.statistics import estimate


class Bench:
    """Measures settings against the default and remembers every pair.

    Pairs of a study that was interrupted count: a phase asks for the pairs it lacks.
    """

    def __init__(
        self,
        live: LiveRun | RestartRun,
        log: PairLog,
        reporter: Reporter,
        default: Setting,
        *,
        seed: int = 0,
    ) -> None:
        self.live = live
        self.log = log
        self.reporter = reporter
        self.default = default
        self._seed = seed

    def log_ratios(self, phase: Phase, setting: Setting) -> list[float]:
        """Of the pairs of this setting measured in this phase so far."""
        return [pair.log_ratio for pair in self.log.of(phase, setting)]

    def pair(
        self, phase: Phase, setting: Setting, shape: BlockShape, trial: int | None = None
    ) -> Pair:
        """Measure one more pair, starting the script again when it ends meanwhile.

        Raises TrialFailed when the setting cannot be measured, StudyError when the script cannot.
        """
        index = len(self.log.of(phase, setting))
        order = orders(f"{self._seed}:{phase}:{key_of(setting)}:{index // 2}")[index % 2]
        times: PairTimes | None = None
        while times is None:
            self.live.require()
            try:
                times = self.live.measure(setting, order, shape)
            except ScriptEnded:
                if self.live.may_launch:
                    self.reporter.notice("the script has ended and is started again")
        pair = Pair(
            launch=self.live.launch,
            phase=phase,
            trial=trial,
            setting=dict(setting),
            reference=dict(self.default),
            log_ratio=times.log_ratio,
            setting_step_ms=1e3 * times.setting_step_s,
            reference_step_ms=1e3 * times.reference_step_s,
            steps=times.steps,
            order=times.order,
            t_unix=time.time(),
        )
        self.log.append(pair)
        so_far = estimate(self.log_ratios(phase, setting))
        self.reporter.measured(setting, so_far, 1.0 / times.setting_step_s)
        return pair


def by_launch(pairs: Sequence[Pair]) -> list[list[float]]:
    """The log ratios, one list per launch, launches in order."""
    launches: dict[int, list[float]] = {}
    for pair in pairs:
        launches.setdefault(pair.launch, []).append(pair.log_ratio)
    return [launches[launch] for launch in sorted(launches)]
