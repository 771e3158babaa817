"""The proof: one setting against the default on fresh pairs, in fresh launches."""

from collections.abc import Sequence
from typing import Final

from hvdtune.core.config.knobs import Setting
from hvdtune.plural import counted
from hvdtune.tuner.measure.blocks import BlockShape
from hvdtune.tuner.measure.pair_plan import VerifyPlan
from hvdtune.tuner.measure.pair_runner import PairRunner
from hvdtune.tuner.search.context import StudyContext
from hvdtune.tuner.stats.verdict import A_GAIN, Verdict, Wording, judge
from hvdtune.tuner.storage.pair_log import by_launch

_MOST_TIMES_LONGER: Final = 3  # the longest launch, in pairs, than one that counts


def prove(
    context: StudyContext,
    setting: Setting,
    plan: VerifyPlan,
    *,
    wording: Wording = A_GAIN,
    trial: int | None = None,
) -> Verdict:
    """The verdict on a setting; it is out at the first look at which it is clear.

    Raises TrialFailed when the setting makes the script fail.
    """
    for index in range(len(plan.looks)):
        launches = verify(
            context.runner, setting, context.calibration.shape, plan, trial=trial, look=index
        )
        pairs = sum(len(launch) for launch in launches)
        verdict = judge(
            setting,
            context.default,
            launches,
            context.calibration.floor(pairs),
            resolution_percent=context.options.proof.resolution_percent,
            wording=wording,
            confidence=plan.confidence,
        )
        if verdict.kind != "noisy":
            break
    return verdict


def verify(
    runner: PairRunner,
    setting: Setting,
    shape: BlockShape,
    plan: VerifyPlan,
    *,
    trial: int | None = None,
    look: int = 0,
) -> list[list[float]]:
    """Measure what is planned up to a look; returns log ratios by launch.

    Each part of the plan is measured in a launch of its own, so that what one launch happens to be
    good at does not decide. Raises TrialFailed when the setting makes the script fail.
    """
    pairs = plan.looks[look]
    done = len(runner.log.of("verify", setting))
    runner.reporter.phase("verify", _to_do(pairs - done, done))
    part = -(-(pairs - (plan.looks[look - 1] if look else 0)) // plan.launches)
    fresh = not plan.may_restart or (not plan.restart and done == 0)
    while done < pairs:
        if not fresh:
            runner.restart()
        fresh = not plan.may_restart
        for _ in range(min(part, pairs - done)):
            runner.pair("verify", setting, shape, trial)
            done += 1
    return whole_launches(list(by_launch(runner.log.of("verify", setting)).values()))


def whole_launches(launches: Sequence[list[float]]) -> list[list[float]]:
    """Those with at least a third as many pairs as the longest.

    A launch of which the script ended after a pair or two says little of its level, which counts as
    much as that of the others: with two launches the interval would be so wide that nothing could
    be proved. How many pairs there are decides and not what they say, so the interval holds.
    """
    most = max((len(launch) for launch in launches), default=0)
    return [launch for launch in launches if _MOST_TIMES_LONGER * len(launch) >= most]


def _to_do(missing: int, done: int) -> str:
    fresh = counted(max(0, missing), "fresh pair")
    return f"{fresh}, {done} measured before" if done else fresh
