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
from scipy import linalg, optimize, stats

Floats = NDArray[np.float64]

_SMALLEST_STDERR = 1e-4
# Losses beyond this are pressed together: how bad a bad setting is tells nothing about good ones.
_FAR_LOSS = 0.1
_LENGTH_PRIOR = (math.log(0.5), 0.8)
_SCALE_PRIOR = (math.log(0.05), 1.0)
_STARTS = (0.25, 0.8)


@dataclass(frozen=True)
class Observation:
    """A log ratio with its standard error at a point of the unit cube."""

    point: Sequence[float]
    value: float
    stderr: float


@dataclass(frozen=True)
class Surrogate:
    """The process given the observations; `best` is its mean where that is largest among them."""

    points: Floats
    lengths: Floats
    scale: float
    mean: float
    weights: Floats
    factor: Floats
    best: float

    def predict(self, points: Floats) -> tuple[Floats, Floats]:
        """Mean and standard deviation of the true value at points (n, d)."""
        cross = _kernel(points, self.points, self.lengths, self.scale)
        mean = self.mean + cross @ self.weights
        half = linalg.solve_triangular(self.factor, cross.T, lower=True)
        variance = np.maximum(self.scale**2 - np.sum(half**2, axis=0), 1e-12)
        return mean, np.sqrt(variance)


def fit(observations: Sequence[Observation]) -> Surrogate:
    """The process given at least two observations."""
    points = np.array([each.point for each in observations], dtype=float)
    values = np.array([_pressed(each.value) for each in observations])
    noise = np.array([max(each.stderr, _SMALLEST_STDERR) for each in observations]) ** 2
    dimensions = points.shape[1]

    def loss(logs: Floats) -> float:
        return _minus_log_posterior(logs, points, values, noise)

    tries = [
        optimize.minimize(
            loss,
            np.array([math.log(length)] * dimensions + [math.log(max(float(values.std()), 0.01))]),
            method="L-BFGS-B",
            bounds=[(math.log(0.05), math.log(10.0))] * dimensions + [(math.log(1e-3), 1.0)],
            options={"maxiter": 40},
        )
        for length in _STARTS
    ]
    found = min(tries, key=lambda each: float(each.fun)).x
    lengths, scale = np.exp(found[:-1]), float(np.exp(found[-1]))
    mean, weights, factor = _solve(points, values, noise, lengths, scale)
    at_points = mean + _kernel(points, points, lengths, scale) @ weights
    return Surrogate(points, lengths, scale, mean, weights, factor, float(at_points.max()))


def expected_improvement(surrogate: Surrogate, points: Floats) -> Floats:
    """By how much each point is expected to be better than the best so far."""
    mean, sd = surrogate.predict(points)
    ahead = (mean - surrogate.best) / sd
    return np.asarray(sd * (ahead * stats.norm.cdf(ahead) + stats.norm.pdf(ahead)), dtype=float)


def chance_to_beat(surrogate: Surrogate, points: Floats, margin: float) -> Floats:
    """How likely each point is better than the best so far by more than `margin`."""
    mean, sd = surrogate.predict(points)
    return np.asarray(stats.norm.sf((surrogate.best + margin - mean) / sd), dtype=float)


def suggest(observations: Sequence[Observation], candidates: Floats) -> int:
    """Which of the candidates (n, d) to observe next: that of the largest expected improvement."""
    return int(np.argmax(expected_improvement(fit(observations), candidates)))


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
    covariance = _kernel(points, points, lengths, scale) + np.diag(noise + 1e-10)
    factor = linalg.cholesky(covariance, lower=True)
    ones = linalg.cho_solve((factor, True), np.ones(len(values)))
    mean = float(ones @ values / ones.sum())
    return mean, linalg.cho_solve((factor, True), values - mean), factor


def _minus_log_posterior(logs: Floats, points: Floats, values: Floats, noise: Floats) -> float:
    lengths, scale = np.exp(logs[:-1]), float(np.exp(logs[-1]))
    mean, weights, factor = _solve(points, values, noise, lengths, scale)
    likelihood = -0.5 * float((values - mean) @ weights) - float(np.log(np.diag(factor)).sum())
    middle, spread = _LENGTH_PRIOR
    prior = -0.5 * float(np.sum(((logs[:-1] - middle) / spread) ** 2))
    middle, spread = _SCALE_PRIOR
    prior -= 0.5 * ((float(logs[-1]) - middle) / spread) ** 2
    return -(likelihood + prior)
