"""A model of the tuner inside Horovod 0.28 (HOROVOD_AUTOTUNE=1), after its source.

What it does: five windows of ten steps, of which the median counts, are one sample of a setting;
the score is bytes per microsecond. Fusion threshold and cycle time are drawn by Bayesian
optimization from a linear box of 0 to 64 MB x 1 to 100 ms, with the same four points first and 21
samples in all. That is done anew for every combination of the switches. The setting with the
largest sample wins; nothing is measured twice, and the default is never measured.
"""

from __future__ import annotations

import itertools
import math
from typing import Final

import numpy as np
from scipy import linalg, optimize, special

from hvdtune.core.config.knobs import Setting, Value

WARM_UP_SAMPLES: Final = 3
WINDOWS: Final = 5
WINDOW_STEPS: Final = 10
SAMPLES_PER_COMBINATION: Final = 21
BOX: Final = np.array([[0.0, 64.0], [1.0, 100.0]])  # MB, ms
FIRST_POINTS: Final = ((4.0, 5.0), (32.0, 50.0), (16.0, 25.0), (8.0, 10.0))
_NOISE: Final = 0.8
_XI: Final = 0.01
_RESTARTS: Final = 25
_MIB: Final = 1 << 20
_LONGEST_CYCLE_MS: Final = 50.0  # of our knob: longer ones count as this


class ParameterManager:
    """`setting` is the one to run; `tune` takes its score and moves on to the next."""

    def __init__(self, default: Setting, switches: tuple[str, ...], seed: int) -> None:
        self._default = dict(default)
        self._switches = switches
        # The first switch turns fastest.
        self._combinations = [
            values[::-1] for values in itertools.product((False, True), repeat=len(switches))
        ]
        self._at = 0
        self._draw = np.random.default_rng(seed)
        self._points: list[tuple[float, float]] = [FIRST_POINTS[0]]
        self._scores: list[float] = []
        self._warm_up = WARM_UP_SAMPLES
        self._best = (-math.inf, self._of(FIRST_POINTS[0]))
        self.done = False

    @property
    def setting(self) -> dict[str, Value]:
        """The setting in use: the one being sampled, or the winner."""
        return self._best[1] if self.done else self._of(self._points[-1])

    def tune(self, score: float) -> None:
        """Takes the sample of the current setting."""
        if self._warm_up > 0:
            self._warm_up -= 1
            return
        if score > self._best[0]:
            self._best = (score, self.setting)
        self._scores.append(score)
        if len(self._scores) < len(FIRST_POINTS):
            self._points.append(FIRST_POINTS[len(self._scores)])
        elif len(self._scores) < SAMPLES_PER_COMBINATION:
            self._points.append(self._most_promising())
        else:
            self._points, self._scores = [FIRST_POINTS[0]], []
            self._at += 1
            self.done = self._at == len(self._combinations)

    def _of(self, point: tuple[float, float]) -> dict[str, Value]:
        switches = dict(zip(self._switches, self._combinations[self._at], strict=True))
        return {
            **self._default,
            **switches,
            "fusion_threshold_bytes": int(point[0] * _MIB),
            "cycle_time_ms": min(point[1], _LONGEST_CYCLE_MS),
        }

    def _most_promising(self) -> tuple[float, float]:
        """Where the expected improvement over the best of the fitted means is largest."""
        points = np.array(self._points)
        scores = np.array(self._scores)
        spread = float(scores.std()) or 1.0
        scores = (scores - scores.mean()) / spread
        length, amplitude = _fit(points, scores)
        known = _kernel(points, points, length, amplitude) + _NOISE**2 * np.eye(len(points))
        factor = linalg.cho_factor(known, lower=True)
        weights = linalg.cho_solve(factor, scores)
        top = float((_kernel(points, points, length, amplitude) @ weights).max())

        def shortfall(at: np.ndarray) -> float:
            near = _kernel(at[None, :], points, length, amplitude)
            variance = amplitude**2 + 1e-8 - (near @ linalg.cho_solve(factor, near.T))[0, 0]
            sigma = math.sqrt(max(variance, 1e-12))
            gain = float((near @ weights)[0]) - top - _XI
            z = gain / sigma
            density = math.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
            return -(gain * float(special.ndtr(z)) + sigma * density)

        starts = self._draw.uniform(BOX[:, 0], BOX[:, 1], size=(_RESTARTS, 2))
        best = min(starts, key=shortfall)
        found = optimize.minimize(shortfall, best, method="L-BFGS-B", bounds=BOX)
        at = found.x if found.fun <= shortfall(best) else best
        return float(at[0]), float(at[1])


def _kernel(one: np.ndarray, other: np.ndarray, length: float, amplitude: float) -> np.ndarray:
    distance = ((one[:, None, :] - other[None, :, :]) ** 2).sum(axis=2)
    return amplitude**2 * np.exp(-0.5 / length**2 * distance)


def _fit(points: np.ndarray, scores: np.ndarray) -> tuple[float, float]:
    def unlikeliness(at: np.ndarray) -> float:
        known = _kernel(points, points, at[0], at[1]) + _NOISE**2 * np.eye(len(points))
        factor = linalg.cho_factor(known, lower=True)
        fit = 0.5 * scores @ linalg.cho_solve(factor, scores)
        return float(fit + np.log(np.diag(factor[0])).sum())

    limits = [(1e-2, 1e3), (1e-3, 1e2)]
    length, amplitude = optimize.minimize(
        unlikeliness, np.ones(2), method="L-BFGS-B", bounds=limits, options={"maxiter": 100}
    ).x
    return float(length), float(amplitude)
