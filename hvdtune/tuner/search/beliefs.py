"""What is believed of each trial's setting: all trials together, each with its standard error.

Single readings are noise: of forty the largest is a lucky one. So a trial stands where a Gaussian
process puts it that has seen all of them, and the one that was verified where its fresh pairs and
the process put it together.
"""

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from hvdtune.tuner.search.context import StudyContext
from hvdtune.tuner.stats.estimates import estimate_over_launches, pooled
from hvdtune.tuner.stats.posterior import Posterior
from hvdtune.tuner.storage.pair_log import by_launch
from hvdtune.tuner.storage.study_store import StudyStore

_FAR_SLOWER = -0.1
# What the process takes for granted counts as so many pairs at most for each that was measured.
_PRIOR_PAIRS = 3


def search_posteriors(context: StudyContext, store: StudyStore) -> Mapping[int, Posterior]:
    """By trial, without the verification; empty where fewer than two trials were measured.

    What is far below the best is less far below it here.
    """
    observed = store.observations()
    for trial in store.trials():
        raced = (
            context.runner.search_log_ratios("race", trial.setting)
            if trial.number in observed
            else []
        )
        if raced:
            values = context.runner.search_log_ratios("search", trial.setting) + raced
            own = pooled(values, context.calibration.search_noise, 0.95)
            observed[trial.number] = replace(
                observed[trial.number], value=own.mean, stderr=own.stderr
            )
    if len(observed) < 2:
        return {}
    from hvdtune.tuner.stats.gaussian_process import fit  # scipy takes half a second

    process = fit(list(observed.values()))
    means, sds = process.predict(np.array([each.point for each in observed.values()]))
    return {
        number: Posterior(float(mean), float(sd))
        for number, mean, sd in zip(observed, means, sds, strict=True)
    }


def posteriors(context: StudyContext, store: StudyStore) -> dict[int, Posterior]:
    """By trial, with the fresh pairs of those that were verified.

    Not of the default, whose gain is 0 by definition, nor of trials far slower than it: of those
    the process is told less than was read. Where noise hides everything, the process takes settings
    for equal; how sure it may be of that is limited.
    """
    found = dict(search_posteriors(context, store))
    least_sd = _least_sd(context)
    for trial in store.trials():
        if trial.number not in found:
            continue
        if trial.setting == context.default or trial.log_ratio < _FAR_SLOWER:
            del found[trial.number]
            continue
        fresh = context.runner.log.of("verify", trial.setting)
        if fresh:
            launches = list(by_launch(fresh).values())
            found[trial.number] = found[trial.number].given(estimate_over_launches(launches))
    return {
        number: replace(posterior, sd=max(posterior.sd, least_sd))
        for number, posterior in found.items()
    }


def _least_sd(context: StudyContext) -> float:
    pairs = sum(
        pair.phase != "calibrate" and not pair.set_aside for pair in context.runner.log.pairs
    )
    return context.calibration.search_noise.sd / math.sqrt((1 + _PRIOR_PAIRS) * max(pairs, 1))
