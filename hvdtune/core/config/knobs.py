"""The knob table of the C++ core as Python values.

The native module is loaded on first use, so that code which is given a table (the tuner's space,
its tests) runs without it.
"""

import functools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from hvdtune.core.config import script_knobs
from hvdtune.errors import UsageError
from hvdtune.parse import SWITCHES

Value = script_knobs.Value
Setting = Mapping[str, Value]


@dataclass(frozen=True, eq=False)
class Knob:
    """One row of the table; `low` and `high` are inclusive and in `unit`.

    Attributes:
        choices: values of a category.
        changes_results: searched only if it is named.
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
    choices: tuple[Value, ...] = ()
    changes_results: bool = False

    @property
    def is_of_script(self) -> bool:
        """True if the training script declares it."""
        return script_knobs.is_of_script(self.name)


@functools.cache
def load_knobs() -> tuple[Knob, ...]:
    """Return the native table."""
    from hvdtune.core._native import knob_table

    return tuple(Knob(**row) for row in knob_table())


def read_declaration(line: str) -> Knob:
    """Return the row that a line from `script_knobs.declaration` adds to the table."""
    content = json.loads(line)
    values = tuple(content["values"])
    return Knob(
        script_knobs.PREFIX + content["name"],
        unit="",
        kind="category",
        low=0,
        high=len(values) - 1,
        log=False,
        default=values[0],
        scope="live",
        doc="Declared by the script.",
        choices=values,
        changes_results=content["changes_results"],
    )


def default_setting(knobs: Sequence[Knob] | None = None) -> dict[str, Value]:
    """Return every knob at its default."""
    return {knob.name: knob.default for knob in (load_knobs() if knobs is None else knobs)}


def validate(setting: Setting, knobs: Sequence[Knob] | None = None) -> dict[str, Value]:
    """Return the setting with each value as its knob's type, knobs in the given order.

    If the table has no knob of a script, `script.` names may have any value until the script runs.

    Raises UsageError naming a knob that is unknown, of the wrong kind or out of range.
    """
    table = {knob.name: knob for knob in (load_knobs() if knobs is None else knobs)}
    return {name: _valid(table, name, value) for name, value in setting.items()}


def parse_assignments(
    assignments: Sequence[str], knobs: Sequence[Knob] | None = None
) -> dict[str, Value]:
    """Parse texts such as `cycle_time_ms=2.5`. Raises UsageError."""
    table = {knob.name: knob for knob in (load_knobs() if knobs is None else knobs)}
    values: dict[str, Value] = {}
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        if not equals:
            raise UsageError(f"{assignment!r} is not of the form knob=value")
        name, text = name.strip(), text.strip()
        knob = _find(table, name)
        if name in values:
            raise UsageError(f"{name} has two values. Leave one out")
        parsed = script_knobs.parse_value(text) if knob is None else _parsed(knob, text)
        values[name] = _valid(table, name, parsed)
    return values


def _find(table: Mapping[str, Knob], name: str) -> Knob | None:
    """Return the knob, None for a knob of a script that has not declared any yet."""
    if name in table:
        return table[name]
    if script_knobs.is_of_script(name) and not any(knob.is_of_script for knob in table.values()):
        return None
    known = f"the knobs are {', '.join(table)}" if table else "this command has no knobs"
    raise UsageError(f"unknown knob {name}; {known}")


def _valid(table: Mapping[str, Knob], name: str, value: Value) -> Value:
    knob = _find(table, name)
    if knob is not None:
        return _checked(knob, value)
    script_knobs.check_name(name.removeprefix(script_knobs.PREFIX))
    script_knobs.check_value(name, value)
    return value


def _parsed(knob: Knob, text: str) -> Value:
    if knob.is_of_script:
        return script_knobs.parse_value(text)
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
    if knob.is_of_script:
        return script_knobs.find_value(knob.name, value, knob.choices)
    if knob.kind == "category":
        if value not in knob.choices:
            choices = script_knobs.listed(knob.choices)
            raise UsageError(f"{knob.name} = {value!r} is not one of {choices}")
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
