"""The proof: one setting against the default on fresh pairs, in fresh launches."""

from hvdtune.core.knobs import Setting
from hvdtune.tuner.bench import Bench, by_launch
from hvdtune.tuner.measure import BlockShape
from hvdtune.tuner.plan import VerifyPlan


def verify(
    bench: Bench, setting: Setting, shape: BlockShape, plan: VerifyPlan, trial: int | None = None
) -> list[list[float]]:
    """Measure the planned pairs; returns log ratios by launch.

    The script is restarted between the parts of the plan, so that what one launch happens to be
    good at does not decide. Raises TrialFailed when the setting makes the script fail.
    """
    bench.reporter.phase(
        "verify", f"{plan.pairs} fresh pairs, launches of the script: {plan.launches}"
    )
    done = len(bench.log.of("verify", setting))
    fresh = not plan.restart and done == 0
    while done < plan.pairs:
        if not fresh:
            bench.live.restart()
        fresh = False
        part = min(plan.pairs_per_launch, plan.pairs - done)
        for _ in range(part):
            bench.pair("verify", setting, shape, trial)
        done += part
    return by_launch(bench.log.of("verify", setting))
