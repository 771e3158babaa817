"""Grids of known shape, for trying the comparison out before there is a recording."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Final

import numpy as np

from hvdtune.core.config.knobs import Setting, Value, default_setting
from studies.tuning.recordings.grid import Grid, Noise
from studies.tuning.recordings.scenarios import KIB, LARGE_TENSORS, TWO_HOSTS, Axes

_SERIES: Final = 2000
_LAUNCHES: Final = 6


def flat(setting: Setting) -> float:
    """The default is the best, by little."""
    return -0.01 * abs(_octaves(setting["cycle_time_ms"], 1.0)) - _unfused(setting)


def peak(setting: Setting) -> float:
    """Short cycles and middling buckets gain 12 % together."""
    cycle = 0.07 - 0.015 * abs(_octaves(setting["cycle_time_ms"], 0.2))
    bucket = 0.05 - 0.008 * abs(_octaves(setting["fusion_threshold_bytes"], 4096 * KIB))
    origin = 0.07 - 0.015 * math.log2(5) + 0.05 - 0.008 * 5
    return cycle + bucket - origin - _unfused(setting)


def hierarchy(setting: Setting) -> float:
    """Over two hosts the hierarchical algorithm is a quarter faster, the torus nearly."""
    if setting["hierarchical_allreduce"]:
        gain = 0.25
    else:
        gain = 0.22 if setting["torus_allreduce"] else 0.0
    return gain - 0.005 * abs(_octaves(setting["cycle_time_ms"], 1.0)) - _unfused(setting)


SHAPES: Final[dict[str, tuple[Axes, int, Callable[[Setting], float]]]] = {
    "synthetic-flat": (LARGE_TENSORS, 1, flat),
    "synthetic-peak": (LARGE_TENSORS, 1, peak),
    "synthetic-hierarchy": (TWO_HOSTS, 2, hierarchy),
}


def make(
    name: str, *, step_sd: float = 0.05, slow_sd: float = 0.02, launch_sd: float = 0.004
) -> Grid:
    """A grid of this shape, with step noise, slow drift and differences between launches."""
    axes, hosts, shape = SHAPES[name]
    default: dict[str, Value] = default_setting()
    values = [
        shape({**default, **dict(zip(axes, at, strict=True))})
        for at in itertools.product(*axes.values())
    ]
    draw = np.random.default_rng(7)
    moods = tuple(_mood(draw, step_sd, slow_sd) for _ in range(_LAUNCHES))
    noise = Noise(moods, (0.05, 0.0), launch_sd * draw.standard_normal(200), 0.0, launch_sd, (0.0,))
    gains = np.array(values).reshape([len(choices) for choices in axes.values()])
    return Grid(
        name,
        (shape.__doc__ or name).strip(),
        hosts,
        {axis: tuple(choices) for axis, choices in axes.items()},
        default,
        step_s=0.010,
        bytes=16_000_000,
        gains=gains,
        noise=noise,
        pairs=0,
    )


def _mood(draw: np.random.Generator, step_sd: float, slow_sd: float) -> np.ndarray:
    slow = np.zeros(_SERIES)
    for at in range(1, _SERIES):
        slow[at] = 0.98 * slow[at - 1] + 0.2 * slow_sd * draw.standard_normal()
    wave = 0.1 * np.sin(2 * np.pi * np.arange(_SERIES) / 1500 + draw.uniform(0, 6))
    return slow + wave + step_sd * draw.standard_normal(_SERIES)


def _unfused(setting: Setting) -> float:
    return 1.5 if setting["fusion_threshold_bytes"] == 0 else 0.0


def _octaves(value: Value, origin: float) -> float:
    return math.log2((float(value) or origin / 32) / origin)
