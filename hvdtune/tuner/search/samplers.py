"""Who proposes the next setting: Optuna's samplers by name, and our own noise-aware one."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.samplers import BaseSampler
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from hvdtune.core.config.knobs import Setting, Value
from hvdtune.errors import UsageError
from hvdtune.tuner.space.search_space import Axis, Space, key_of
from hvdtune.tuner.space.tune_options import DEFAULT_SAMPLER, SamplerName, TuneOptions
from hvdtune.tuner.space.unit_cube import at_share, share_of, to_cube
from hvdtune.tuner.stats.estimates import Observation
from hvdtune.tuner.storage.trial import observations

_CANDIDATES = 1024
_NEAR_BEST = 256
# A first look along an axis goes at least this share of its range away from the default.
_FIRST_LOOK = 0.25
# A log ratio over the default from which on ranges are looked at beside the best, not the default.
_CLEAR_GAIN = 0.05
# What a sampler needs beyond hvdtune's own dependencies, by the module that is imported.
_NEEDS = {"gp": ("torch", "torch"), "cmaes": ("cmaes", "cmaes")}
_ONE_OBJECTIVE_ONLY = ("cmaes", "noisy_gp")


def make_sampler(
    name: SamplerName,
    space: Space,
    *,
    seed: int,
    trials: int,
    objectives: int = 1,
    key: Callable[[Setting], str] = key_of,
) -> BaseSampler:
    """The sampler of this name.

    Args:
        seed: equal seeds draw equal settings.
        trials: how many there will be: a part of them is drawn at random first.
        objectives: how many values a trial has.
        key: equal for settings of which one need not be measured when the other is.

    Raises UsageError when a package is missing, or it cannot do with several objectives.
    """
    check_sampler(name, objectives)
    startup = max(4, min(10, trials // 4))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        if name == "random":
            return optuna.samplers.RandomSampler(seed=seed)
        if name == "grid":
            return GridSampler(space.grid(trials), seed=seed)
        if name == "gp":
            return optuna.samplers.GPSampler(seed=seed, n_startup_trials=startup)
        if name == "cmaes":
            return optuna.samplers.CmaEsSampler(
                seed=seed, n_startup_trials=startup, warn_independent_sampling=False
            )
        if name == "noisy_gp":
            return NoisyGpSampler(space, seed=seed, key=key)
        return optuna.samplers.TPESampler(
            seed=seed, multivariate=True, group=True, n_startup_trials=startup
        )


def sampler_for(
    space: Space, options: TuneOptions
) -> Callable[[int, Callable[[Setting], str]], BaseSampler]:
    """A function that makes the study's sampler of a seed and a key, for `StudyStore`."""
    return lambda seed, key: make_sampler(
        options.sampler,
        space,
        seed=seed,
        trials=options.trials,
        objectives=len(options.objectives),
        key=key,
    )


def default_sampler(objectives: int) -> SamplerName:
    """Return the sampler for users who name none."""
    return DEFAULT_SAMPLER if objectives == 1 else "tpe"


def check_sampler(name: SamplerName, objectives: int = 1) -> None:
    """Raises UsageError when the sampler cannot be used here."""
    if objectives > 1 and name in _ONE_OBJECTIVE_ONLY:
        raise UsageError(f"the sampler {name} supports only one objective: use tpe")
    module, package = _NEEDS.get(name, ("", ""))
    if module:
        try:
            __import__(module)
        except ImportError:
            raise UsageError(
                f"the sampler {name} needs the package {package}: "
                f"pip install 'hvdtune[samplers]', or use tpe"
            ) from None


class GridSampler(optuna.samplers.GridSampler):
    """Optuna's, for ask and tell: `is_exhausted` says when every point has been told."""

    def after_trial(
        self,
        study: Study,
        trial: FrozenTrial,
        state: TrialState,
        values: Sequence[float] | None,
    ) -> None:
        """Optuna's would stop the loop of `optimize`, and there is none."""


class NoisyGpSampler(BaseSampler):
    """Expected improvement of a Gaussian process that knows each trial's standard error.

    Reads it from the user attribute `stderr` (percent points), which the store writes. First each
    knob is changed alone, far from the default: of settings drawn at random most have some knob at
    an end where steps take several times as long, and tell nothing of the others. Then each range
    is looked through from the best so far: under a switch that matters it may do another thing.
    Settings of a `key` that a trial has had are not proposed again.
    """

    def __init__(self, space: Space, *, seed: int, key: Callable[[Setting], str]) -> None:
        self._space = space
        self._key = key
        self._distributions = distributions(space)
        self._generator = np.random.default_rng(seed)
        self._random = optuna.samplers.RandomSampler(seed=seed)

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """The whole space, whose shape never changes."""
        del study, trial
        return dict(self._distributions)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """The default but for a knob that no trial has changed yet, or the best but for one, or the
        candidate of the largest expected improvement."""
        del trial, search_space
        trials = study.get_trials(deepcopy=False)
        untried = self._untried(trials)
        observed = observations(trials, self._space)
        if untried is not None:
            return self._departure(trials, observed, *untried)
        if len(observed) < 2:
            return {}
        beside = self._beside_best(trials, observed)
        if beside is not None:
            return beside
        from hvdtune.tuner.stats.gaussian_process import suggest  # only its process needs scipy

        candidates = draw_params(self._space, list(observed.values()), self._generator)
        points = np.array([to_cube(self._space, params) for params in candidates])
        known = {self._key(trial.user_attrs["setting"]) for trial in trials if _is_taken(trial)}
        for at in suggest(list(observed.values()), points, self._generator):
            if self._key(self._space.setting_of(candidates[at])) not in known:
                break
        return candidates[at]

    def _untried(self, trials: Sequence[FrozenTrial]) -> tuple[Axis, list[Value]] | None:
        """A knob that no trial has changed, and its choices that no trial has had.

        One of the script's as long as there are such choices: nothing says that they are alike.
        """
        tried = [trial.user_attrs.get("setting", self._space.default) for trial in trials]
        # The way between hosts changes most, and what is best of the others.
        for axis in sorted(self._space.axes, key=lambda axis: axis.knob.min_hosts < 2):
            name, default = axis.knob.name, self._space.default[axis.knob.name]
            had = [setting[name] for setting in tried]
            left = [each for each in axis.choices if each != default and each not in had]
            if all(each == default for each in had) or (left and axis.knob.is_of_script):
                return axis, left
        return None

    def _beside_best(
        self, trials: Sequence[FrozenTrial], observed: Mapping[int, Observation]
    ) -> dict[str, Any] | None:
        """The best setting but for one range, as often as each range has thirds without it."""
        ranges = [axis for axis in self._space.axes if not axis.choices]
        looks = sum(self._untried(trials[:at]) is None for at in range(1, len(trials) + 1)) - 1
        if looks >= 2 * len(ranges):
            return None
        best, _ = self._best(trials, observed)
        axis, third = ranges[looks // 2], looks % 2
        own = min(int(3 * max(share_of(axis, float(best[axis.knob.name])), 0.0)), 2)
        place = ([each for each in range(3) if each != own][third] + self._generator.random()) / 3
        best[axis.knob.name] = at_share(axis, float(place))
        return best

    def _best(
        self, trials: Sequence[FrozenTrial], observed: Mapping[int, Observation]
    ) -> tuple[dict[str, Any], float]:
        """The parameters of the trial that the process takes for the best, and the log ratio that
        it very likely gains at least."""
        from hvdtune.tuner.stats.gaussian_process import fit

        params = {trial.number: trial.params for trial in trials}
        means, sds = fit(list(observed.values())).predict(
            np.array([each.point for each in observed.values()])
        )
        at = int(np.argmax(means))
        return dict(params[list(observed)[at]]), float(means[at] - 2 * sds[at])

    def _departure(
        self,
        trials: Sequence[FrozenTrial],
        observed: Mapping[int, Observation],
        axis: Axis,
        choices: Sequence[Value],
    ) -> dict[str, Any]:
        params: dict[str, Any] = self._space.params_of(self._space.default)
        if axis.choices:
            params[axis.knob.name] = choices[int(self._generator.integers(len(choices)))]
            return params
        if len(observed) >= 2:
            best, at_least = self._best(trials, observed)
            params = best if at_least > _CLEAR_GAIN else params
        start = share_of(axis, float(params[axis.knob.name]))
        low, high = max(start - _FIRST_LOOK, 0.0), min(start + _FIRST_LOOK, 1.0)
        place = float(self._generator.random()) * (low + 1.0 - high)
        params[axis.knob.name] = at_share(axis, place if place < low else place + high - low)
        return params

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """Draw the value at random."""
        return self._random.sample_independent(study, trial, param_name, param_distribution)


def _is_taken(trial: FrozenTrial) -> bool:
    return "setting" in trial.user_attrs and not trial.user_attrs.get("zombie")


def distributions(space: Space) -> dict[str, BaseDistribution]:
    """The distributions that `Space.suggest` asks an Optuna trial for, by knob."""
    return {axis.knob.name: _distribution(axis) for axis in space.axes}


def draw_params(
    space: Space, observed: Sequence[Observation], generator: np.random.Generator
) -> list[dict[str, Any]]:
    """Candidates: over the whole space, and close to the best observed points."""
    drawn = [_random_params(space, generator) for _ in range(_CANDIDATES)]
    best = sorted(observed, key=lambda each: each.stderr - each.value)[:3]
    for index in range(_NEAR_BEST if best else 0):
        drawn.append(_params_near(space, best[index % len(best)].point, generator))
    return drawn


def _random_params(space: Space, generator: np.random.Generator) -> dict[str, Any]:
    return {
        axis.knob.name: (
            axis.choices[int(generator.integers(len(axis.choices)))]
            if axis.choices
            else at_share(axis, float(generator.random()))
        )
        for axis in space.axes
    }


def _params_near(
    space: Space, point: Sequence[float], generator: np.random.Generator
) -> dict[str, Any]:
    params: dict[str, Any] = {}
    at = 0
    for axis in space.axes:
        width = 1 if len(axis.choices) in (0, 2) else len(axis.choices)
        own = point[at : at + width]
        at += width
        if not axis.choices:
            near = own[0] + float(generator.normal(0, 0.1))
            params[axis.knob.name] = at_share(axis, min(max(near, 0.0), 1.0))
            continue
        index = int(own[0] > 0) if width == 1 else int(np.argmax(own))
        if generator.random() < 0.2:
            index = int(generator.integers(len(axis.choices)))
        params[axis.knob.name] = axis.choices[index]
    return params


def _distribution(axis: Axis) -> BaseDistribution:
    if axis.choices:
        return CategoricalDistribution(axis.choices)
    if axis.is_plain:
        return IntDistribution(int(axis.low), int(axis.high))
    return FloatDistribution(axis.sampled_low, axis.high, log=axis.knob.log)
