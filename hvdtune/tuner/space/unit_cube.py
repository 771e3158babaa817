"""Settings as points: every axis of a space from 0 to 1."""

import math
from collections.abc import Mapping
from typing import Any

from hvdtune.tuner.space.search_space import Axis, Space

# Where "off" is, on an axis from 0 to 1: often a cliff separates it from the smallest value.
_OFF = -0.25


def to_cube(space: Space, params: Mapping[str, Any]) -> list[float]:
    """Parameters as a point: a range is one dimension, a choice among k is k of them, or one of
    two values where k is 2."""
    point: list[float] = []
    for axis in space.axes:
        value = params[axis.knob.name]
        if len(axis.choices) == 2:
            point.append(0.6 * axis.choices.index(value))
        elif axis.choices:
            point += [0.5 * (choice == value) for choice in axis.choices]
        else:
            is_off = axis.off and float(value) < axis.low
            point.append(_OFF if is_off else share_of(axis, float(value)))
    return point


def share_of(axis: Axis, value: float) -> float:
    """Return where a value is on its axis, from 0 to 1."""
    low, high = axis.sampled_low, axis.high
    if axis.knob.log:
        return math.log(max(value, low) / low) / math.log(high / low)
    return (value - low) / (high - low)


def at_share(axis: Axis, share: float) -> float | int:
    """The value at a place on its axis."""
    low, high = axis.sampled_low, axis.high
    if axis.knob.log:
        return float(min(low * math.exp(share * math.log(high / low)), high))
    value = low + share * (high - low)
    return round(value) if axis.is_plain else value
