"""What is in use after a search: what is proved, else what is most likely best and harmless."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from hvdtune.core.config.knobs import Setting, Value
from hvdtune.tuner.search.beliefs import Believed
from hvdtune.tuner.search.context import StudyContext
from hvdtune.tuner.stats.choice import choose
from hvdtune.tuner.stats.posterior import belief_of
from hvdtune.tuner.stats.verdict import SimplerSetting, Verdict
from hvdtune.tuner.storage.study_store import StudyStore

# A setting that gains this share of another's gain, as log ratios, gains nearly as much.
_NEARLY: Final = 0.9


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


def with_simpler(
    verdict: Verdict,
    default: Setting,
    settings: Mapping[int, Setting],
    found: Mapping[int, Believed],
) -> Verdict:
    """The verdict with the setting of fewest changes that gains nearly as much as the chosen one.

    A search changes knobs that matter beside knobs that do not; whoever reads the verdict is to see
    which are which.

    Args:
        settings: those of the trials, by number.
        found: what is believed of them after all the evidence, by number.
    """
    wanted = _changes(verdict.setting, default)
    chosen = [each for number, each in found.items() if settings[number] == verdict.setting]
    if not chosen:
        return verdict
    enough = _NEARLY * chosen[0].over_launches.mean
    nearly = [
        (len(changes), -each.over_launches.mean, number)
        for number, each in found.items()
        if (changes := _changes(settings[number], default)) < wanted
        and each.over_launches.mean >= enough
        and belief_of(each.over_launches).low_percent > 0
    ]
    if not nearly:
        return verdict
    number = min(nearly)[-1]
    believed = belief_of(found[number].over_launches)
    return replace(verdict, simpler=SimplerSetting(dict(settings[number]), believed))


def _changes(setting: Setting, default: Setting) -> set[tuple[str, Value]]:
    return {(name, value) for name, value in setting.items() if value != default.get(name)}
