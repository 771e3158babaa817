"""What is in use after a search: what is proved, else what is most likely best and harmless."""

from collections.abc import Mapping
from dataclasses import replace

from hvdtune.tuner.search.beliefs import Believed
from hvdtune.tuner.search.context import StudyContext
from hvdtune.tuner.stats.choice import choose
from hvdtune.tuner.stats.posterior import belief_of
from hvdtune.tuner.stats.verdict import Verdict
from hvdtune.tuner.storage.study_store import StudyStore


def with_choice(
    context: StudyContext,
    store: StudyStore,
    verdict: Verdict,
    found: Mapping[int, Believed],
    *,
    goes_on: bool,
) -> Verdict:
    """The verdict with the setting to use where it proves none, and what is believed of it.

    Where a setting was verified, it is that one or the default: what was believed of the others
    rests on their lucky readings still. It is the default where the gain was excluded or differs
    between launches, and where settings that had been measured made the script fail later.

    Args:
        found: what is believed after all the evidence, by trial.
        goes_on: the training does, in the launch that ran last.
    """
    settings = {trial.number: trial.setting for trial in store.trials()}
    if verdict.candidate is None:
        if any(settings[number] in context.runner.failed for number in found):
            return verdict
    else:
        found = {n: each for n, each in found.items() if settings[n] == verdict.candidate}
        for each in found.values():
            in_search = replace(belief_of(each.search), scope="in the launch of the search")
            verdict = replace(verdict, believed=each.shown(goes_on=goes_on), in_search=in_search)
        if verdict.kind != "noisy":
            return verdict
    number = choose({n: each.chosen_by(goes_on=goes_on) for n, each in found.items()})
    if number is None:
        return verdict
    expected = found[number].shown(goes_on=goes_on)
    return replace(verdict, setting=dict(settings[number]), expected=expected)
