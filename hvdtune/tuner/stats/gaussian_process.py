"""A Gaussian process over the unit cube that knows how noisy each observation is. Pure.

Optuna's samplers take the value of a trial for what it is; here a trial of three pairs weighs less
than one of ten. Matern 5/2 kernel with a length per dimension, a constant mean, known noise per
observation. The parameters are the most probable ones under weak priors.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, optimize, special

from hvdtune.tuner.stats.estimates import Observation
from hvdtune.tuner.stats.launch_levels import OWN_LIKING

Floats = NDArray[np.float64]

_SMALLEST_STDERR = 1e-4
_JITTER = 1e-10
# Losses beyond this against the best are pressed together: how bad a bad setting is tells nothing
# about good ones.
_FAR_LOSS = 0.1
_LENGTH_PRIOR = (math.log(1.0), 1.2)
_SCALE_PRIOR = (math.log(0.05), 1.0)
_STARTS = (0.25, 0.8)
_LENGTH_DOUBT = (-0.5, 0.7)


@dataclass(frozen=True)
class Surrogate:
    """The process given the observations; `best` is its mean where that is largest among them.

    What is far below the best is less far below it here.
    """

    points: Floats
    values: Floats
    noise: Floats
    lengths: Floats
    scale: float
    mean: float
    weights: Floats
    factor: Floats
    best: float

    def along(self, lengths: Floats) -> "Surrogate":
        """The process given the same observations, with other lengths."""
        return _given(self.points, self.values, self.noise, lengths, self.scale)

    def predict(self, points: Floats) -> tuple[Floats, Floats]:
        """Mean and standard deviation of the true value at points (n, d)."""
        cross = _kernel(points, self.points, self.lengths, self.scale)
        mean = self.mean + cross @ self.weights
        half = linalg.solve_triangular(self.factor, cross.T, lower=True)
        variance = np.maximum(self.scale**2 - np.sum(half**2, axis=0), 1e-12)
        return mean, np.sqrt(variance)

    def covariance(self, points: Floats) -> Floats:
        """How the true values at points (n, d) go together."""
        cross = _kernel(points, self.points, self.lengths, self.scale)
        half = linalg.solve_triangular(self.factor, cross.T, lower=True)
        return np.asarray(_kernel(points, points, self.lengths, self.scale) - half.T @ half)


def fit(observations: Sequence[Observation]) -> Surrogate:
    """The process given at least two observations."""
    points = np.array([each.point for each in observations], dtype=float)
    best = _best(observations)
    values = np.array([best + _pressed(each.value - best) for each in observations])
    noise = np.array([_noise(each) for each in observations]) ** 2
    dimensions = points.shape[1]

    apart = (points[:, None, :] - points[None, :, :]) ** 2

    def loss(logs: Floats) -> tuple[float, Floats]:
        return _minus_log_posterior(logs, apart, values, noise)

    tries = [
        optimize.minimize(
            loss,
            np.array([math.log(length)] * dimensions + [math.log(max(float(values.std()), 0.01))]),
            jac=True,
            method="L-BFGS-B",
            bounds=[(math.log(0.05), math.log(100.0))] * dimensions + [(math.log(1e-3), 1.0)],
            options={"maxiter": 40},
        )
        for length in _STARTS
    ]
    found = min(tries, key=lambda each: float(each.fun)).x
    lengths, scale = np.exp(found[:-1]), float(np.exp(found[-1]))
    return _given(points, values, noise, lengths, scale)


def far_below(observations: Sequence[Observation]) -> list[int]:
    """The places of those that are so far below the best, whatever their noise, that the process
    is told less than was observed."""
    least = _best(observations) - _FAR_LOSS
    return [at for at, each in enumerate(observations) if each.value + 2 * each.stderr < least]


def _best(observations: Sequence[Observation]) -> float:
    return max(each.value - 2 * each.stderr for each in observations)


def _given(
    points: Floats, values: Floats, noise: Floats, lengths: Floats, scale: float
) -> Surrogate:
    mean, weights, factor = _solve(points, values, noise, lengths, scale)
    at_points = mean + _kernel(points, points, lengths, scale) @ weights
    best = float(at_points.max())
    return Surrogate(points, values, noise, lengths, scale, mean, weights, factor, best)


def expected_improvement(surrogate: Surrogate, points: Floats) -> Floats:
    """Return by how much each point is expected to be better than the best so far."""
    mean, sd = surrogate.predict(points)
    ahead = (mean - surrogate.best) / sd
    return np.asarray(sd * (ahead * special.ndtr(ahead) + _density(ahead)), dtype=float)


def _density(values: Floats) -> Floats:
    return np.asarray(np.exp(-(values**2) / 2) / math.sqrt(2 * math.pi), dtype=float)


def chance_to_beat(surrogate: Surrogate, points: Floats, margin: float) -> Floats:
    """Return how likely each point is better than the best so far by more than `margin`."""
    mean, sd = surrogate.predict(points)
    return np.asarray(special.ndtr((mean - surrogate.best - margin) / sd), dtype=float)


def suggest(
    observations: Sequence[Observation], candidates: Floats, generator: np.random.Generator
) -> list[int]:
    """The candidates (n, d) by what is expected of them, the one to observe next first.

    How smooth the truth is, few observations do not tell: each time the most probable lengths are
    taken times a factor that is drawn, or the search would trust one guess and stay in a corner.
    """
    surrogate = fit(observations)
    factors = np.exp(generator.normal(_LENGTH_DOUBT[0], _LENGTH_DOUBT[1], surrogate.lengths.shape))
    doubted = surrogate.along(surrogate.lengths * factors)
    return [int(at) for at in np.argsort(-expected_improvement(doubted, candidates))]


def _noise(observation: Observation) -> float:
    if observation.stderr == 0.0:
        return _SMALLEST_STDERR
    return math.hypot(observation.stderr, OWN_LIKING)


def _pressed(value: float) -> float:
    if value >= -_FAR_LOSS:
        return value
    return -_FAR_LOSS * (1 + math.log1p((-value - _FAR_LOSS) / _FAR_LOSS))


def _kernel(one: Floats, other: Floats, lengths: Floats, scale: float) -> Floats:
    apart = one[:, None, :] / lengths - other[None, :, :] / lengths
    distance = math.sqrt(5) * np.sqrt(np.sum(apart**2, axis=2))
    return np.asarray(scale**2 * (1 + distance + distance**2 / 3) * np.exp(-distance), dtype=float)


def _solve(
    points: Floats, values: Floats, noise: Floats, lengths: Floats, scale: float
) -> tuple[float, Floats, Floats]:
    covariance = _kernel(points, points, lengths, scale) + np.diag(noise + _JITTER)
    factor = linalg.cholesky(covariance, lower=True)
    mean, weights = _mean_and_weights(factor, values)
    return mean, weights, factor


def _mean_and_weights(factor: Floats, values: Floats) -> tuple[float, Floats]:
    ones = linalg.cho_solve((factor, True), np.ones(len(values)))
    mean = float(ones @ values / ones.sum())
    return mean, linalg.cho_solve((factor, True), values - mean)


def _minus_log_posterior(
    logs: Floats, apart: Floats, values: Floats, noise: Floats
) -> tuple[float, Floats]:
    """With its gradient (Rasmussen and Williams, 2006, equation 5.9). `apart` (n, n, d) are the
    squared differences of the points along each dimension."""
    scale = float(np.exp(logs[-1]))
    along = apart * np.exp(-2 * logs[:-1])
    distance = math.sqrt(5) * np.sqrt(np.sum(along, axis=2))
    decay = scale**2 * np.exp(-distance)
    kernel = decay * (1 + distance + distance**2 / 3)
    factor = linalg.cholesky(kernel + np.diag(noise + _JITTER), lower=True)
    mean, weights = _mean_and_weights(factor, values)
    inverse = linalg.cho_solve((factor, True), np.eye(len(values)))
    steep = np.outer(weights, weights) - inverse
    by_lengths = 0.5 * np.einsum("ij,ijd->d", steep * decay * (1 + distance) * (5 / 3), along)
    likelihood = -0.5 * float((values - mean) @ weights) - float(np.log(np.diag(factor)).sum())
    gradient = np.append(by_lengths, float(np.sum(steep * kernel)))
    middles = np.array([_LENGTH_PRIOR[0]] * (len(logs) - 1) + [_SCALE_PRIOR[0]])
    spreads = np.array([_LENGTH_PRIOR[1]] * (len(logs) - 1) + [_SCALE_PRIOR[1]])
    away = (logs - middles) / spreads
    return -(likelihood - 0.5 * float(away @ away)), -(gradient - away / spreads)
