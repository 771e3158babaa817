"""The options of a study."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from hvdtune.core.config.knobs import Knob, Setting
from hvdtune.tuner.space.objectives import Objective
from hvdtune.tuner.space.search_space import LIVE_SCOPES, KnobRange, Space, make_space

SamplerName = Literal["tpe", "gp", "cmaes", "random", "grid", "noisy_gp"]
DEFAULT_SAMPLER: Final[SamplerName] = "noisy_gp"


@dataclass(frozen=True)
class PairOptions:
    """Numbers of pairs before the verification.

    Attributes:
        calibration: pairs of the default with itself.
        short_calibration: their minimum if the time is short.
        min_per_trial: minimum for each trial.
        max_per_trial: maximum for each trial.
        race_entrants: number of settings in the race of the best trials.
        race: pairs of each setting in the race.
    """

    calibration: int = 5
    short_calibration: int = 3
    min_per_trial: int = 1
    max_per_trial: int = 10
    race_entrants: int = 5
    race: int = 4


@dataclass(frozen=True)
class ProofOptions:
    """Size of the verification.

    Attributes:
        min_pairs: minimum number of pairs if there is time for them.
        max_pairs: maximum number of pairs.
        short_pairs: minimum number of pairs if the time is short: enough to prove a large gain.
        launches: number of launches with pairs.
        max_launches: maximum number of launches if some of them fail.
        resolution_percent: the smallest gain of interest.
    """

    min_pairs: int = 20
    max_pairs: int = 120
    short_pairs: int = 8
    launches: int = 3
    max_launches: int = 5
    resolution_percent: float = 1.0


@dataclass(frozen=True)
class BlockOptions:
    """Length of a block of steps.

    Attributes:
        seconds: time that a block should take.
        min_steps: minimum number of steps.
        short_steps: minimum if a pair with `min_steps` would take more than 10 % of the time.
    """

    seconds: float = 0.02
    min_steps: int = 4
    short_steps: int = 2


@dataclass(frozen=True)
class LimitOptions:
    """Limits of one launch, in seconds of the launcher's clock, and of failed launches."""

    max_crashes: int = 3
    form_s: float = 120.0
    first_step_s: float = 300.0
    adopt_s: float = 30.0
    stall_s: float = 300.0
    exit_s: float = 600.0


@dataclass(frozen=True)
class TuneOptions:
    """Options of a study; the defaults suit a script of 50 to 200 steps per second.

    Attributes:
        time_budget_s: time limit of the study, in seconds of the launcher's clock.
        tunable: names of the knobs to search; None: every live knob.
        fixed: knobs that keep the value of the start setting.
        ranges: replace the ranges of the knob table.
        objectives: with several, the improvement of the first is proved.
        step_budget: maximum number of steps of the study.
        train_steps: steps of the whole training. The study makes no trial that the remaining
            steps cannot repay.
        restarts: False: the script is started once and never ended; its end ends the study.
        is_elastic: the ranks may change, which ends the study of the earlier ranks.
        watch_drift: continue the study if the step time changes lastingly after the verdict.
        probe_share: fraction of the time in which an unproven setting is compared with the default.
        use_earlier: measure the result of earlier launches first. If it is confirmed, use it
            without a search.
        keep_timelines: number of latest trials with a timeline, in addition to the best; 0: none.
    """

    trials: int = 40
    time_budget_s: float = 480.0
    seed: int = 0
    tunable: tuple[str, ...] | None = None
    fixed: tuple[str, ...] = ()
    ranges: Mapping[str, KnobRange] = field(default_factory=dict)
    objectives: tuple[Objective, ...] = ("step_time",)
    sampler: SamplerName = DEFAULT_SAMPLER
    step_budget: int | None = None
    train_steps: int | None = None
    restarts: bool = True
    is_elastic: bool = False
    watch_drift: bool = True
    probe_share: float = 0.02
    use_earlier: bool = True
    keep_timelines: int = 3
    pairs: PairOptions = PairOptions()
    proof: ProofOptions = ProofOptions()
    blocks: BlockOptions = BlockOptions()
    limits: LimitOptions = LimitOptions()

    def space(
        self,
        knobs: Sequence[Knob],
        default: Setting,
        hosts: int = 1,
        scopes: Sequence[str] = LIVE_SCOPES,
        *,
        awaits_script: bool = False,
    ) -> Space:
        """Make the search space. Raises UsageError; see `make_space`."""
        return make_space(
            knobs,
            default,
            hosts,
            tunable=self.tunable,
            fixed=self.fixed,
            ranges=self.ranges,
            scopes=scopes,
            awaits_script=awaits_script,
        )


# A study during one run, which only the user ends.
ONE_RUN: Final = TuneOptions(
    restarts=False,
    proof=ProofOptions(launches=1, max_launches=1),
    limits=LimitOptions(form_s=math.inf, first_step_s=math.inf, stall_s=math.inf, exit_s=math.inf),
)
# A pair is two launches. It costs a hundred times as much as in a live run, but it contains two
# new launches, so fewer pairs prove as much.
BY_RESTARTING: Final = TuneOptions(
    pairs=PairOptions(calibration=6, short_calibration=6, min_per_trial=2, max_per_trial=6, race=3),
    proof=ProofOptions(min_pairs=12, short_pairs=12, max_pairs=32, launches=12, max_launches=32),
    blocks=BlockOptions(min_steps=10),
)


def by_restarting(launch_s: float) -> TuneOptions:
    """Return the options of a study that measures `launch_s` seconds in each launch."""
    return replace(BY_RESTARTING, blocks=replace(BY_RESTARTING.blocks, seconds=launch_s))
