"""What a grid's gains truly are, as far as pairs and neighbours agree. Pure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy import linalg, optimize

from hvdtune.core.config.knobs import Value

OCTAVES_TO_OFF: Final = 3.0  # below the smallest value of an axis that has 0, which is "off"
# Losses beyond this are pressed together while smoothing: a cliff says nothing about what is not
# near it, but would make the process expect cliffs everywhere.
_FAR_LOSS: Final = 0.1


def position(values: Sequence[Value], value: Value) -> float:
    """The place of a value on its axis in octaves; switches are 0 and 1."""
    if isinstance(values[0], bool):
        return float(bool(value))
    number = float(value)
    lowest = math.log2(min(float(v) for v in values if v))
    off = lowest - OCTAVES_TO_OFF
    return max(off, math.log2(number)) if number > 0 else off


def positions(values: Sequence[Value]) -> np.ndarray:
    """The places of all values of an axis, in ascending order."""
    return np.array([position(values, value) for value in values])


def smoothed(
    axes: Mapping[str, Sequence[Value]],
    sums: np.ndarray,
    counts: np.ndarray,
    pair_sd: float,
    default_at: tuple[int, ...],
) -> np.ndarray:
    """The gains that a Gaussian process makes of the pairs' sums and counts, 0 for the default.

    Its length scales, its amplitude and what no neighbour explains are those under which the
    recorded means are most likely.

    Args:
        sums, counts: of log ratios, one dimension per axis.
        pair_sd: spread of one pair.
        default_at: where the default is.
    """
    points = _unit_points(axes)
    origin = np.ravel_multi_index(default_at, counts.shape)
    seen = counts.ravel() > 0
    raw = sums.ravel()[seen] / counts.ravel()[seen]
    shrunk = np.where(raw < -_FAR_LOSS, -_FAR_LOSS / np.minimum(raw, -_FAR_LOSS), 1.0)
    error = (pair_sd * shrunk) ** 2 / counts.ravel()[seen]
    process = _Process(points[seen], points[origin], _pressed(raw), error)
    factor, logs = process.most_likely(pair_sd)
    means = process.covariance(points, points[seen], logs) @ linalg.cho_solve(factor, process.means)
    # A setting's own departure from its neighbours, as far as its pairs vouch for it.
    own = math.exp(2 * logs[1])
    means[seen] += (process.means - means[seen]) * own / (own + error)
    means[origin] = 0.0
    return _released(means).reshape(counts.shape)


@dataclass(frozen=True)
class _Process:
    """Relative to the origin, whose value is known. `logs` are the logarithms of the amplitude, of
    what each point has of its own, and of the length along each axis."""

    points: np.ndarray
    origin: np.ndarray
    means: np.ndarray
    error: np.ndarray

    def most_likely(self, pair_sd: float) -> tuple[tuple[np.ndarray, bool], np.ndarray]:
        """The factor of the covariance of the points, and the parameters."""
        axes = self.points.shape[1]
        spread = max(float(np.std(self.means)), 1e-3)
        start = [math.log(spread), math.log(pair_sd / 10), *[math.log(0.5)] * axes]
        limits = [(math.log(1e-4), math.log(3.0)), (math.log(1e-4), math.log(spread))]
        limits += [(math.log(0.05), math.log(20.0))] * axes
        logs = optimize.minimize(
            self._unlikeliness,
            np.array(start),
            method="L-BFGS-B",
            bounds=limits,
            options={"maxiter": 40},
        ).x
        return self._factor(logs), logs

    def covariance(self, one: np.ndarray, other: np.ndarray, logs: np.ndarray) -> np.ndarray:
        at = self.origin[None, :]
        return (
            _kernel(one, other, logs)
            - _kernel(one, at, logs)
            - _kernel(at, other, logs)
            + _kernel(at, at, logs)
        )

    def _factor(self, logs: np.ndarray) -> tuple[np.ndarray, bool]:
        own = np.exp(2 * logs[1])
        total = self.covariance(self.points, self.points, logs) + np.diag(self.error + own)
        return linalg.cho_factor(total, lower=True)

    def _unlikeliness(self, logs: np.ndarray) -> float:
        try:
            factor = self._factor(logs)
        except linalg.LinAlgError:
            return 1e12
        fit = self.means @ linalg.cho_solve(factor, self.means)
        return float(0.5 * fit + np.log(np.diag(factor[0])).sum())


def _kernel(one: np.ndarray, other: np.ndarray, logs: np.ndarray) -> np.ndarray:
    distance = ((one[:, None, :] - other[None, :, :]) / np.exp(logs[2:])) ** 2
    return np.exp(2 * logs[0]) * np.exp(-0.5 * distance.sum(axis=2))


def _unit_points(axes: Mapping[str, Sequence[Value]]) -> np.ndarray:
    places = [positions(values) for values in axes.values()]
    spans = [float(np.ptp(place)) or 1.0 for place in places]
    return np.array(
        [
            [place / span for place, span in zip(at, spans, strict=True)]
            for at in itertools.product(*places)
        ]
    )


def _pressed(gains: np.ndarray) -> np.ndarray:
    far = np.maximum(-gains - _FAR_LOSS, 0.0) / _FAR_LOSS
    return np.where(gains >= -_FAR_LOSS, gains, -_FAR_LOSS * (1 + np.log1p(far)))


def _released(pressed: np.ndarray) -> np.ndarray:
    far = np.maximum(-pressed / _FAR_LOSS - 1.0, 0.0)
    return np.where(pressed >= -_FAR_LOSS, pressed, -_FAR_LOSS * (1 + np.expm1(far)))
