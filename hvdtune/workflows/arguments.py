"""Checks of the arguments of the Python API, before anything starts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple, get_args

from hvdtune.errors import UsageError
from hvdtune.launcher.jobs import is_for_a_process
from hvdtune.tuner.space.tune_options import SamplerName


class _Rule(NamedTuple):
    holds: Callable[[object], bool]
    text: str


def check_arguments(**arguments: object) -> None:
    """Raise UsageError for the first invalid argument; None is an omitted one."""
    for name, value in arguments.items():
        rule = _RULES[name]
        is_left_out = value is None and name not in _NEEDED
        if not is_left_out and not rule.holds(value):
            raise UsageError(f"{name} is {value!r}, but must be {rule.text}")


def _at_least(least: int) -> _Rule:
    return _Rule(
        lambda value: type(value) is int and value >= least,
        f"a whole number, at least {least}",
    )


def _is_seconds(value: object) -> bool:
    return type(value) in (int, float) and 0 < value < math.inf  # type: ignore[operator]


def _is_file(value: object) -> bool:
    return isinstance(value, str | Path) and str(value) != "" and is_for_a_process(str(value))


def _are_names(value: object) -> bool:
    return (
        isinstance(value, Sequence)
        and not isinstance(value, str)
        and all(isinstance(name, str) for name in value)
    )


def _is_script(value: object) -> bool:
    if isinstance(value, str | Path):
        return _is_file(value)
    return isinstance(value, Sequence) and len(value) > 0 and all(_is_file(word) for word in value)


def _is_setting(value: object) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(name, str) and isinstance(knob, str | int | float)
        for name, knob in value.items()
    )


_FILE: Final = _Rule(_is_file, "the path of a file")
_FOLDER: Final = _Rule(_is_file, "the path of a folder")
_FILE_OR_SETTING: Final = _Rule(
    lambda value: _is_file(value) or _is_setting(value),
    'the path of a file, or a dict of knobs\' values, such as {"cycle_time_ms": 2.0}',
)
_NAMES: Final = _Rule(_are_names, "a list of names")

_NEEDED: Final = frozenset({"script", "path"})
_RULES: Final[Mapping[str, _Rule]] = {
    "script": _Rule(_is_script, "a script, or a list of the words of a command"),
    "ranks": _at_least(1),
    "hosts": _Rule(lambda value: isinstance(value, str), 'a text such as "a:2,b:2"'),
    "profile": _FILE,
    "setting": _Rule(_is_setting, 'a dict of knobs\' values, such as {"cycle_time_ms": 2.0}'),
    "trace": _FILE,
    "path": _Rule(_is_file, "the path of a file or folder"),
    "run_dir": _FOLDER,
    "space": _FILE,
    "a": _FILE_OR_SETTING,
    "b": _FILE_OR_SETTING,
    "trials": _at_least(1),
    "pairs": _at_least(6),
    "time_budget_s": _Rule(_is_seconds, "a number of seconds above 0"),
    "knobs": _NAMES,
    "objectives": _NAMES,
    "sampler": _Rule(
        lambda value: value in get_args(SamplerName),
        f"one of {', '.join(get_args(SamplerName))}",
    ),
    "seed": _at_least(0),
}
