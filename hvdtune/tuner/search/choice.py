"""What is in use after a search: what is proved, else what is most likely best and harmless."""

from collections.abc import Mapping
from dataclasses import replace

from hvdtune.tuner.search.context import StudyContext
from hvdtune.tuner.stats.choice import choose
from hvdtune.tuner.stats.posterior import Posterior, belief_of
from hvdtune.tuner.stats.verdict import Verdict
from hvdtune.tuner.storage.study_store import StudyStore


def with_choice(
    context: StudyContext, store: StudyStore, verdict: Verdict, found: Mapping[int, Posterior]
) -> Verdict:
    """The verdict with the setting to use where it proves none; `found` are posteriors by trial.

    Where a setting was verified, it is that one or the default: what was believed of the others
    rests on their lucky readings still. It is the default where the gain was excluded or differs
    between launches, and where settings that had been measured made the script fail later.
    """
    settings = {trial.number: trial.setting for trial in store.trials()}
    if verdict.candidate is None:
        if any(settings[number] in context.runner.failed for number in found):
            return verdict
    elif verdict.kind == "noisy":
        found = {n: each for n, each in found.items() if settings[n] == verdict.candidate}
    else:
        return verdict
    number = choose(found)
    if number is None:
        return verdict
    return replace(verdict, setting=dict(settings[number]), expected=belief_of(found[number]))
