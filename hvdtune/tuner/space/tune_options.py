"""What the caller may choose about a study."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from hvdtune.core.config.knobs import Knob, Setting
from hvdtune.tuner.space.objectives import Objective
from hvdtune.tuner.space.search_space import LIVE_SCOPES, KnobRange, Space, make_space

SamplerName = Literal["tpe", "gp", "cmaes", "random", "grid", "noisy_gp"]
DEFAULT_SAMPLER: Final[SamplerName] = "noisy_gp"


@dataclass(frozen=True)
class TuneOptions:
    """Options of a study; the defaults suit a script of 50 to 200 steps per second.

    `tunable` restricts the search to these knobs (None: every live knob); knobs in `fixed` keep
    the value of the start setting. With `restarts` False the script is started once, is never
    ended, and its own end ends the study. With `is_elastic` its ranks may change, which ends the
    study of those that there were. The times are seconds of the launcher's clock.

    `ranges` are narrower than the knob table's. Of several `objectives` the first is the one whose
    improvement is proved. The study takes at most `step_budget` steps; `train_steps` are those of
    the whole training: no trial is made that the rest of it cannot pay for. With `watch_drift` the
    study is opened again when the training lastingly changes its pace after the verdict, and a
    setting that is in use without proof is compared with the default for `probe_share` of the time.

    With `use_earlier` the setting that earlier launches of the job are known to have ended with is
    measured first, and used without a search if it holds.

    A verification has `min_verify_pairs` and more, or where the time is too short for these as many
    as it has room for, but no fewer than `short_verify_pairs`: enough to show a large gain. Of the
    default with itself there are `calibrate_pairs`, and no fewer than `short_calibrate_pairs`.

    A block has `min_block_steps` at least, or where a pair of such would take more than a tenth of
    the time, `short_block_steps`.

    Beside the best trial's, the timelines of the last `keep_timelines` are kept; 0: none at all.
    """

    trials: int = 40
    time_budget_s: float = 480.0
    seed: int = 0
    tunable: tuple[str, ...] | None = None
    fixed: tuple[str, ...] = ()
    restarts: bool = True
    is_elastic: bool = False
    ranges: Mapping[str, KnobRange] = field(default_factory=dict)
    objectives: tuple[Objective, ...] = ("step_time",)
    sampler: SamplerName = DEFAULT_SAMPLER
    step_budget: int | None = None
    train_steps: int | None = None
    watch_drift: bool = True
    probe_share: float = 0.02
    use_earlier: bool = True

    calibrate_pairs: int = 5
    short_calibrate_pairs: int = 3
    min_pairs_per_trial: int = 1
    max_pairs_per_trial: int = 10
    resolution_percent: float = 1.0
    race_entrants: int = 5
    race_pairs: int = 4
    min_verify_pairs: int = 20
    max_verify_pairs: int = 120
    short_verify_pairs: int = 8
    verify_launches: int = 3
    max_verify_launches: int = 5

    block_s: float = 0.02
    min_block_steps: int = 4
    short_block_steps: int = 2

    max_crashes: int = 3
    form_timeout_s: float = 120.0
    first_step_timeout_s: float = 300.0
    adopt_timeout_s: float = 30.0
    stall_timeout_s: float = 300.0
    exit_timeout_s: float = 600.0

    keep_timelines: int = 3

    def space(
        self,
        knobs: Sequence[Knob],
        default: Setting,
        hosts: int = 1,
        scopes: Sequence[str] = LIVE_SCOPES,
        *,
        awaits_script: bool = False,
    ) -> Space:
        """Makes the space that is searched. Raises UsageError; see `make_space`."""
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


# A study that goes along with one run and leaves its life to others
ONE_RUN: Final = TuneOptions(
    restarts=False,
    verify_launches=1,
    max_verify_launches=1,
    form_timeout_s=math.inf,
    first_step_timeout_s=math.inf,
    stall_timeout_s=math.inf,
    exit_timeout_s=math.inf,
)
# A pair is two launches: it costs a hundred times what it does in a live run and holds two fresh
# launches, so that fewer prove as much: the verification is all launches.
BY_RESTARTING: Final = TuneOptions(
    min_block_steps=10,
    calibrate_pairs=6,
    short_calibrate_pairs=6,
    min_pairs_per_trial=2,
    max_pairs_per_trial=6,
    race_pairs=3,
    min_verify_pairs=12,
    short_verify_pairs=12,
    max_verify_pairs=32,
    verify_launches=12,
    max_verify_launches=32,
)
