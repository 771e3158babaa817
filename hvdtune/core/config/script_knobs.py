"""Knobs that a training script declares: names, values and declarations.

In settings, profiles and options their names begin with `script.`, so that they differ from those
of the runtime.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from hvdtune.errors import UsageError

Value = int | float | bool | str
"""A value of any knob, of a script or of the runtime."""

PREFIX: Final = "script."
VARIABLE: Final = "HVDTUNE_SCRIPT_KNOBS"
"""The environment variable with the values that a job starts with, as a JSON object."""

_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
_PLAIN: Final = re.compile(r"[\w.+/@-]+")
_MOST_VALUES: Final = 64


def is_of_script(name: str) -> bool:
    """Return True if a script declares the knob of this name."""
    return name.startswith(PREFIX)


def check_name(name: object) -> None:
    """Raise UsageError unless a script may give a knob this name."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} is not a valid name of a knob. Use up to 64 letters, digits and _, starting "
            "with a letter"
        )


def check_values(name: str, values: object) -> tuple[Value, ...]:
    """Return the values that a script gives a knob; the first is the default.

    Raises UsageError unless they are different numbers, strings or switches.
    """
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise UsageError(f"knob {name} needs a list of values, as in [1, 2, 4], not {values!r}")
    if not 1 <= len(values) <= _MOST_VALUES:
        raise UsageError(f"knob {name} needs 1 to {_MOST_VALUES} values, not {len(values)}")
    found: list[Value] = []
    for value in values:
        check_value(name, value)
        if value in found:  # 1, 1.0 and True are one
            raise UsageError(f"knob {name} has the value {value!r} twice")
        found.append(value)
    return tuple(found)


def check_value(name: str, value: object) -> None:
    """Raise UsageError unless it is a switch, a finite number or a string."""
    is_number = isinstance(value, int | float) and math.isfinite(value)
    if not is_number and not isinstance(value, str):
        raise UsageError(
            f"knob {name} cannot have the value {value!r}. Use True, False, a finite number or a "
            "string"
        )


def find_value(name: str, value: object, values: Sequence[Value]) -> Value:
    """Return the declared value that equals `value`. Raises UsageError naming them all."""
    for each in values:
        if each == value and isinstance(each, bool) == isinstance(value, bool):
            return each
    raise UsageError(f"{name} = {value!r} is not one of the script's values: {listed(values)}")


def listed(values: Sequence[Value]) -> str:
    """Return the values in one line."""
    return ", ".join(quoted(value) if isinstance(value, str) else str(value) for value in values)


def quoted(text: str) -> str:
    """Return a string, in quotes if it would be ambiguous without."""
    return text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)


def parse_value(text: str) -> Value:
    """Return the value of a text on a command line: its value as JSON, else the text."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, int | float) else text


def declaration(name: str, values: Sequence[Value], *, changes_results: bool) -> str:
    """Return the declaration of a knob, the same on all ranks, as one line of JSON."""
    content = {"name": name, "values": list(values), "changes_results": changes_results}
    return json.dumps(content)


def read_start_values(environ: Mapping[str, str]) -> dict[str, Value]:
    """Return the values that the environment gives knobs of the script.

    Raises UsageError if the variable contains anything else.
    """
    text = environ.get(VARIABLE)
    if not text:
        return {}
    try:
        values: Any = json.loads(text)
    except ValueError:
        values = None
    if not isinstance(values, dict) or not all(map(is_of_script, values)):
        raise UsageError(
            f"{VARIABLE}={text} is not a JSON object of names that begin with {PREFIX}"
        )
    for name, value in values.items():
        check_name(name.removeprefix(PREFIX))
        check_value(name, value)
    return values


def start_variables(setting: Mapping[str, Value]) -> dict[str, str]:
    """Return the variable with the setting's values of knobs of the script, if it has any."""
    own = {name: value for name, value in setting.items() if is_of_script(name)}
    return {VARIABLE: json.dumps(own)} if own else {}
