"""The knob table of the C++ core as Python values.

The native module is loaded on first use, so that code which is given a table (the tuner's space,
its tests) runs without it.
"""

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from hvdtune.errors import UsageError
from hvdtune.parse import SWITCHES

Value = int | float | bool | str
Setting = Mapping[str, Value]


@dataclass(frozen=True, eq=False)
class Knob:
    """One row of the table; `low` and `high` are inclusive and in `unit`.

    The value of a category is one of `choices`.
    """

    name: str
    unit: str
    kind: Literal["int", "float", "bool", "category"]
    low: float
    high: float
    log: bool
    default: Value
    scope: Literal["live", "reinit", "restart"]
    min_hosts: int = 1
    doc: str = ""
    choices: tuple[str, ...] = ()


if TYPE_CHECKING:
    KNOBS: tuple[Knob, ...]


def __getattr__(name: str) -> tuple[Knob, ...]:
    if name == "KNOBS":
        return load_knobs()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@functools.cache
def load_knobs() -> tuple[Knob, ...]:
    """The native table, in its order; also available as `KNOBS`."""
    from hvdtune.core._native import knob_table

    return tuple(Knob(**row) for row in knob_table())


def default_setting(knobs: Sequence[Knob] | None = None) -> dict[str, Value]:
    """Every knob at its default."""
    return {knob.name: knob.default for knob in (load_knobs() if knobs is None else knobs)}


def validate(setting: Setting, knobs: Sequence[Knob] | None = None) -> dict[str, Value]:
    """The setting with each value as its knob's type, knobs in the given order.

    Raises UsageError naming the knob when it is unknown, of the wrong kind or out of range.
    """
    table = {knob.name: knob for knob in (load_knobs() if knobs is None else knobs)}
    return {name: _checked(_find(table, name), value) for name, value in setting.items()}


def parse_assignments(
    assignments: Sequence[str], knobs: Sequence[Knob] | None = None
) -> dict[str, Value]:
    """Values from texts such as `cycle_time_ms=2.5`; UsageError for anything else."""
    table = {knob.name: knob for knob in (load_knobs() if knobs is None else knobs)}
    values: dict[str, Value] = {}
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        if not equals:
            raise UsageError(f"{assignment!r} is not of the form knob=value")
        knob = _find(table, name.strip())
        if knob.name in values:
            raise UsageError(f"{knob.name} is given two values: leave one out")
        values[knob.name] = _checked(knob, _parsed(knob, text.strip()))
    return values


def _find(table: Mapping[str, Knob], name: str) -> Knob:
    if name not in table:
        raise UsageError(f"unknown knob {name}; the knobs are {', '.join(table)}")
    return table[name]


def _parsed(knob: Knob, text: str) -> Value:
    if knob.kind == "category":
        return text
    if knob.kind == "bool":
        if text.lower() not in SWITCHES:
            raise UsageError(f"{knob.name} = {text!r} is not true or false")
        return SWITCHES[text.lower()]
    try:
        return int(text) if knob.kind == "int" else float(text)
    except ValueError:
        kind = "a whole number" if knob.kind == "int" else "a number"
        raise UsageError(f"{knob.name} = {text!r} is not {kind}") from None


def _checked(knob: Knob, value: Value) -> Value:
    if knob.kind == "category":
        if value not in knob.choices:
            raise UsageError(f"{knob.name} = {value!r} is none of {', '.join(knob.choices)}")
        return value
    if knob.kind == "bool":
        if value not in (0, 1):
            raise UsageError(f"{knob.name} = {value!r} is not true or false")
        return bool(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        raise UsageError(f"{knob.name} = {value!r} is not a number")
    if not knob.low <= value <= knob.high:
        span = f"{_shown(knob, knob.low)} to {_shown(knob, knob.high)} {knob.unit}".rstrip()
        raise UsageError(f"{knob.name} = {_shown(knob, value)} is out of range: {span}")
    if knob.kind == "int":
        if value != int(value):
            raise UsageError(f"{knob.name} = {value} is not a whole number")
        return int(value)
    return float(value)


def _shown(knob: Knob, value: float) -> str:
    return str(int(value)) if knob.kind == "int" and value == int(value) else f"{value:g}"
