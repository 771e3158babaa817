"""What is believed of each trial's setting: all trials together, each with its standard error.

Single readings are noise: of forty the largest is a lucky one. So a trial stands where a Gaussian
process puts it that has seen all of them; only where it is far behind the best, of which the
process is told less than was read, it stands where its own reading puts it. That is about the
launch that was searched in, and says as much of launches in general as one launch does. What was
verified stands where its launches put it, and that of the search is one of them.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hvdtune.core.config.knobs import Setting
from hvdtune.tuner.measure.pair_plan import LARGE_GAIN
from hvdtune.tuner.search.context import StudyContext
from hvdtune.tuner.space.search_space import key_of
from hvdtune.tuner.stats.estimates import (
    CONFIDENCE,
    Estimate,
    Noise,
    Observation,
    estimate,
    estimate_over_launches,
    noise_with,
    pooled,
)
from hvdtune.tuner.stats.launch_levels import OWN_LIKING, levels_of
from hvdtune.tuner.stats.posterior import Belief, Posterior, belief_of, interval_of, posterior_of
from hvdtune.tuner.storage.in_use import SEARCH_PHASES
from hvdtune.tuner.storage.pair_log import by_launch
from hvdtune.tuner.storage.study_store import StudyStore

_FAR_SLOWER: Final = -0.1
# What the process takes for granted counts as so many pairs at most for each that was measured.
_PRIOR_PAIRS: Final = 3
# The process is surer than it should be: in 46 simulated studies of recorded grids, 11 or 12 of
# each, the interval of the setting believed best held the truth 38 times, and widened so 44 times.
# The factor was chosen by the same studies.
_WIDENED: Final = 1.3


@dataclass(frozen=True)
class Believed:
    """What is believed of a setting, as log ratios.

    `over_launches` is about the mean over launches, `here` about the launch that ran last, `search`
    about that of the search by its pairs alone, and `fresh` about the mean over launches by fresh
    pairs alone (None: there are none). Launches are expected to differ by `spread`. `is_of_one`
    says that no launch has been seen but the one that ran last.
    """

    over_launches: Posterior
    here: Posterior
    search: Posterior
    fresh: Posterior | None = None
    spread: float = 0.0
    is_of_one: bool = False

    def chosen_by(self, *, goes_on: bool) -> Posterior:
        """What decides on its use: of the launch that goes on where no other has been seen.

        Without fresh pairs it is what settings like it gain there: what a launch likes of one of
        them alone is as likely for it as against it.
        """
        if not (self.is_of_one and goes_on):
            return self.over_launches
        return self.search if self.fresh is None else self.here

    def shown(self, *, goes_on: bool) -> Belief:
        """For people, in the scope of `chosen_by`."""
        if not (self.is_of_one and goes_on):
            return belief_of(self.over_launches)
        others = interval_of(self.over_launches)
        return replace(belief_of(self.here), scope="in this launch", others_percent=others)


@dataclass(frozen=True)
class MeasuredLaunches:
    """Where a setting was measured: the launches in which it was searched, the log ratios of fresh
    pairs by launch, and the latest launch of the study."""

    searched: frozenset[int]
    fresh: Mapping[int, Sequence[float]]
    latest: int

    @property
    def of_search(self) -> int:
        """The launch that the search has read, -1 where it is not one: it counts as one more."""
        return min(self.searched) if len(self.searched) == 1 else -1

    @property
    def fresh_alone(self) -> Estimate | None:
        """The estimate by fresh pairs alone, as the verdict has it; None: there are none."""
        return estimate_over_launches(list(self.fresh.values())) if self.fresh else None

    def exclude(self, search: Posterior) -> bool:
        """Return whether fresh pairs, of one launch or several, exclude the search's estimate.

        Then that was luck, or what only its launch likes, and counts no more.
        """
        alone = self.fresh_alone
        is_comparable = len(self.fresh) > 1 or self.searched == {*self.fresh}
        return alone is not None and is_comparable and not alone.low <= search.mean <= alone.high


@dataclass(frozen=True)
class _Process:
    """What the readings of the search make of the trials, without the verification."""

    numbers: Sequence[int]
    means: NDArray[np.float64]
    covariance: NDArray[np.float64]

    @property
    def sds(self) -> NDArray[np.float64]:
        return np.asarray(np.sqrt(np.maximum(np.diag(self.covariance), 1e-12)))


def foremost(context: StudyContext, store: StudyStore) -> tuple[int, Posterior] | None:
    """The trial that most is believed of in the launch of the search, and by how much it is ahead
    of the setting that is in use there; None where that is it, or too little was measured."""
    process = _process(context, store)
    if process is None:
        return None
    settings = {trial.number: trial.setting for trial in store.trials()}
    used = context.runner.in_use.setting
    own = [at for at, number in enumerate(process.numbers) if settings[number] == used]
    best = int(np.argmax(process.means))
    if not own or best in own:
        return None
    pair = process.covariance[np.ix_([best, own[0]], [best, own[0]])]
    variance = pair[0, 0] + pair[1, 1] - 2 * pair[0, 1]
    ahead = float(process.means[best] - process.means[own[0]])
    return process.numbers[best], Posterior(ahead, math.sqrt(max(float(variance), 1e-12)))


def search_posteriors(context: StudyContext, store: StudyStore) -> Mapping[int, Posterior]:
    """By trial, without the verification; empty where fewer than two trials were measured."""
    process = _process(context, store)
    if process is None:
        return {}
    return {
        number: Posterior(float(mean), float(sd))
        for number, mean, sd in zip(process.numbers, process.means, process.sds, strict=True)
    }


def posteriors(
    context: StudyContext, store: StudyStore, verified: Setting | None
) -> dict[int, Believed]:
    """By trial, after all that was measured; `verified` is the setting that was, if any.

    Not of the default, whose gain is 0 by definition, nor of trials far slower than it, which
    their readings tell enough of. Where noise hides everything, the process takes settings for
    equal; how sure it may be of that is limited.
    """
    process = _process(context, store)
    if process is None:
        return {}
    process = _no_surer_than_shown(process, _least_sd(context))
    settings = {
        trial.number: trial.setting
        for trial in store.trials()
        if trial.setting != context.default and trial.log_ratio >= _FAR_SLOWER
    }
    found = {
        number: _believed(context, settings[number], Posterior(float(mean), float(sd)))
        for number, mean, sd in zip(process.numbers, process.means, process.sds, strict=True)
        if number in settings
    }
    for number, each in found.items():
        if settings[number] == verified and each.fresh is not None and not each.is_of_one:
            return {**_others(process, found, number, each.fresh), number: each}
    return found


def _believed(context: StudyContext, setting: Setting, search: Posterior) -> Believed:
    run, log = context.run, context.runner.log
    noise = _noise_of(context, search.mean, context.calibration.noise)
    searched = {pair.launch for phase in ("search", "race") for pair in log.of(phase, setting)}
    fresh = by_launch(log.of("verify", setting))
    measured = MeasuredLaunches(frozenset(searched), fresh, run.launch)
    if run.resumable is None:
        return _believed_of_restarts(search, measured)
    return believed_after(search, measured, noise)


def believed_after(search: Posterior, launches: MeasuredLaunches, noise: Noise) -> Believed:
    """What is believed of a setting of which the search has believed this.

    Args:
        noise: the spread of one pair of a setting with itself.
    """
    fresh = launches.fresh
    readings = {launch: _reading(values, noise) for launch, values in fresh.items()}
    by_fresh = levels_of(list(readings.values()), noise.sd).over_launches if fresh else None
    if not launches.exclude(search):
        own = launches.of_search
        level = Posterior(search.mean, math.hypot(search.sd, OWN_LIKING))
        readings[own] = level.given(estimate(fresh[own])) if own in fresh else level
    levels = levels_of(list(readings.values()), noise.sd)
    latest = launches.latest
    is_seen = latest in readings
    return Believed(
        over_launches=levels.over_launches,
        here=levels.level(list(readings).index(latest)) if is_seen else levels.next_launch,
        search=search,
        fresh=by_fresh,
        spread=levels.spread,
        is_of_one=launches.searched | {*fresh} == {latest},
    )


def _believed_of_restarts(search: Posterior, launches: MeasuredLaunches) -> Believed:
    """Return the estimate if every block is a separate launch: the search covers launches."""
    alone = launches.fresh_alone
    if alone is None:
        return Believed(search, search, search)
    fresh = posterior_of(alone)
    after = fresh if launches.exclude(search) else search.given(alone)
    return Believed(after, after, search, fresh)


def _reading(values: Sequence[float], noise: Noise) -> Posterior:
    own = pooled(values, noise, CONFIDENCE)
    return Posterior(own.mean, max(own.stderr, 1e-6))


def _others(
    process: _Process, found: Mapping[int, Believed], verified: int, fresh: Posterior
) -> dict[int, Believed]:
    """The trials that were not verified, after fresh launches of the one that was.

    What these say of the launch of the search holds for all that was read there: if it liked the
    one too much, it did others.
    """
    at = list(process.numbers).index(verified)
    own_launch = found[verified].spread ** 2
    together = process.covariance[at] + own_launch
    share = together / (together[at] + fresh.sd**2)
    means = process.means + share * (fresh.mean - process.means[at])
    variances = np.diag(process.covariance) + own_launch - share * together
    after = zip(process.numbers, means, np.sqrt(np.maximum(variances, 1e-12)), strict=True)
    return {
        number: replace(found[number], over_launches=Posterior(float(mean), float(sd)))
        for number, mean, sd in after
        if number in found
    }


def _process(context: StudyContext, store: StudyStore) -> _Process | None:
    observed = store.observations()
    for trial in store.trials():
        each = observed.get(trial.number)
        if each is not None:
            observed[trial.number] = _of_all_pairs(context, trial.setting, each)
    if len(observed) < 2:
        return None
    from hvdtune.tuner.stats.gaussian_process import far_below, fit  # scipy takes half a second

    readings = list(observed.values())
    process = fit(readings)
    points = np.array([each.point for each in readings])
    means, covariance = process.predict(points)[0], process.covariance(points)
    for at in far_below(readings):
        means[at] = readings[at].value
        covariance[at, :] = covariance[:, at] = 0.0
        covariance[at, at] = process.noise[at]
    return _Process(list(observed), means, covariance)


def _of_all_pairs(context: StudyContext, setting: Setting, stored: Observation) -> Observation:
    """What search and race have read of a trial; as stored where that is the search alone."""
    searched = context.runner.search_log_ratios("search", setting)
    raced = context.runner.search_log_ratios("race", setting)
    known = context.calibration.search_noise
    noise = _noise_of(context, stored.value, known)
    if not searched or not (raced or noise != known):
        return stored
    own = pooled(searched + raced, noise, CONFIDENCE)
    return replace(stored, value=own.mean, stderr=own.stderr)


def _noise_of(context: StudyContext, gain: float, calibrated: Noise) -> Noise:
    """The spread of a pair of a setting that gains so much.

    The calibration has that of the default. A setting that is far faster has another: a step that
    mostly waits takes nearly the same time each time, and one that does not wait does not.
    """
    if gain < LARGE_GAIN:
        return calibrated
    groups: dict[tuple[str, int, str, str], list[float]] = defaultdict(list)
    for pair in context.runner.log.pairs:
        is_measured = pair.phase in (*SEARCH_PHASES, "verify") and not pair.set_aside
        if is_measured and pair.over_default >= LARGE_GAIN:
            key = pair.phase, pair.launch, key_of(pair.setting), key_of(pair.reference)
            groups[key].append(pair.search_log_ratio)
    return noise_with(calibrated, list(groups.values()))


def _no_surer_than_shown(process: _Process, least_sd: float) -> _Process:
    covariance = _WIDENED**2 * process.covariance
    missing = np.maximum((_WIDENED * least_sd) ** 2 - np.diag(covariance), 0.0)
    return replace(process, covariance=covariance + np.diag(missing))


def _least_sd(context: StudyContext) -> float:
    pairs = sum(
        pair.phase != "calibrate" and not pair.set_aside for pair in context.runner.log.pairs
    )
    return context.calibration.search_noise.sd / math.sqrt((1 + _PRIOR_PAIRS) * max(pairs, 1))
