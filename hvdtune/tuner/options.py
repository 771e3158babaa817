"""What the caller may choose about a study."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class TuneOptions:
    """Options of a study; the defaults suit a script of 50 to 200 steps per second.

    `tunable` restricts the search to these knobs (None: every live knob); knobs in `fixed` keep
    the value of the start setting. With `restarts` False the script is started once, is never
    ended, and its own end ends the study. The times are seconds of the launcher's clock. Beside
    the best trial's, the timelines of the last `keep_timelines` are kept; 0: none at all.
    """

    trials: int = 40
    time_budget_s: float = 480.0
    seed: int = 0
    tunable: tuple[str, ...] | None = None
    fixed: tuple[str, ...] = ()
    restarts: bool = True

    calibrate_pairs: int = 8
    min_pairs_per_trial: int = 3
    max_pairs_per_trial: int = 10
    resolution_percent: float = 1.0
    race_entrants: int = 3
    race_pairs: int = 6
    min_verify_pairs: int = 20
    max_verify_pairs: int = 48
    verify_launches: int = 3
    max_verify_launches: int = 5

    block_s: float = 0.25
    min_block_steps: int = 8

    max_crashes: int = 3
    form_timeout_s: float = 120.0
    first_step_timeout_s: float = 300.0
    adopt_timeout_s: float = 30.0
    stall_timeout_s: float = 300.0
    exit_timeout_s: float = 600.0

    keep_timelines: int = 3


def one_run(
    trials: int,
    *,
    time_budget_s: float,
    seed: int = 0,
    tunable: tuple[str, ...] | None = None,
    fixed: tuple[str, ...] = (),
) -> TuneOptions:
    """Options of a study that goes along with one run and leaves its life to others."""
    return TuneOptions(
        trials=trials,
        time_budget_s=time_budget_s,
        seed=seed,
        tunable=tunable,
        fixed=fixed,
        restarts=False,
        verify_launches=1,
        max_verify_launches=1,
        form_timeout_s=math.inf,
        first_step_timeout_s=math.inf,
        stall_timeout_s=math.inf,
        exit_timeout_s=math.inf,
    )
