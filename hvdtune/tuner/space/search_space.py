"""The knob table as an Optuna search space, and Optuna's parameters back as a setting.

A knob whose range starts at 0 on a log scale uses 0 as "off": the sampled range goes one octave
below the smallest value worth a trial, and that octave means 0. So "off" is the neighbour of the
smallest value, which is what it behaves like, and takes a small share of the trials; as a choice
of on or off it took a quarter of them.

Values are rounded to a coarse grid, so that settings which could not be told apart are the same
setting; the default keeps its exact value.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from hvdtune.core.config.knobs import Knob, Setting, Value, validate
from hvdtune.core.config.script_knobs import find_value, is_of_script, quoted
from hvdtune.errors import UsageError
from hvdtune.plural import sized

# Choices by which the last bits of a sum differ: searched only where a space file names them.
OTHER_BITS: Mapping[str, frozenset[str]] = {
    "allreduce_algorithm": frozenset({"ring", "halving_doubling", "tree"})
}
ALL_SCOPES = ("live", "reinit", "restart")
LIVE_SCOPES = ("live",)
_OCTAVES_BELOW_HIGH = 13


class Suggests(Protocol):
    """The part of an Optuna trial that a space needs."""

    def suggest_float(self, name: str, low: float, high: float, *, log: bool = ...) -> float: ...
    def suggest_int(self, name: str, low: int, high: int) -> int: ...
    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any: ...


@dataclass(frozen=True)
class KnobRange:
    """What of a knob is to be searched: its `choices`, or from `low` to `high`.

    None for an end of the knob's own range.
    """

    low: float | None = None
    high: float | None = None
    choices: tuple[Value, ...] = ()


@dataclass(frozen=True)
class Axis:
    """One knob as it is searched: one of `choices`, or if there are none `low` to `high`.

    With `off` 0 is searched too, as the octave below `low`.
    """

    knob: Knob
    choices: tuple[Value, ...] = ()
    low: float = 0.0
    high: float = 0.0
    off: bool = False

    @property
    def sampled_low(self) -> float:
        """The lower end of what is sampled."""
        return self.low / 2 if self.off else self.low

    @property
    def is_plain(self) -> bool:
        """Return whether Optuna's parameter is the value itself."""
        return bool(self.choices) or (self.knob.kind == "int" and not self.knob.log)


@dataclass(frozen=True)
class Space:
    """The axes of the search around a complete default setting, which is a point of it."""

    axes: tuple[Axis, ...]
    default: Setting

    @property
    def knobs(self) -> tuple[Knob, ...]:
        """The knobs that are searched."""
        return tuple(axis.knob for axis in self.axes)

    def suggest(self, trial: Suggests) -> dict[str, Value]:
        """A complete setting from the trial; knobs outside the space keep their default."""
        setting = dict(self.default)
        for axis in self.axes:
            setting[axis.knob.name] = self._suggest(trial, axis)
        return setting

    def setting_of(self, params: Mapping[str, Any]) -> dict[str, Value]:
        """The setting that `suggest` returns for a trial with these parameters."""
        return self.suggest(_Given(params))

    def holds(self, setting: Setting) -> bool:
        """Return whether the search can arrive at this setting."""
        return all(_holds(axis, setting[axis.knob.name]) for axis in self.axes)

    def adopt(self, setting: Mapping[str, Value]) -> dict[str, Value] | None:
        """This setting's values of the knobs that are searched, the default's of all others.

        None where that is the default or the search cannot arrive at it.
        """
        own = {
            axis.knob.name: setting.get(axis.knob.name, self.default[axis.knob.name])
            for axis in self.axes
        }
        whole = {**self.default, **own}
        return whole if whole != dict(self.default) and self.holds(whole) else None

    def params_of(self, setting: Setting) -> dict[str, Value]:
        """The parameters with which `suggest` returns this setting, for Study.enqueue_trial."""
        params: dict[str, Value] = {}
        for axis in self.axes:
            name = axis.knob.name
            if axis.is_plain:
                params[name] = setting[name]
            else:
                params[name] = float(_number(setting[name])) or axis.sampled_low
        return params

    def grid(self, points: int) -> dict[str, list[Value]]:
        """Parameters of a grid of about as many points: all choices, and as many values of each
        range, at least two, as fit."""
        ranges = sum(not axis.choices for axis in self.axes)
        room = points / math.prod(len(axis.choices) or 1 for axis in self.axes)
        levels = max(2, math.floor(room ** (1 / ranges) + 1e-9)) if ranges else 0
        return {axis.knob.name: _levels(axis, levels) for axis in self.axes}

    def signature(self) -> str:
        """One line that is equal for equal spaces around equal defaults."""
        knobs = [
            [axis.knob.name, *(axis.choices or (axis.low, axis.high, axis.knob.log, axis.off))]
            for axis in self.axes
        ]
        return json.dumps({"knobs": knobs, "default": dict(self.default)}, sort_keys=True)

    def script_signature(self) -> str:
        """The same of the knobs that the script has declared; "" where it has none."""
        own = [[axis.knob.name, *axis.choices] for axis in self.axes if axis.knob.is_of_script]
        default = {name: value for name, value in self.default.items() if is_of_script(name)}
        return json.dumps({"knobs": own, "default": default}, sort_keys=True) if default else ""

    def _suggest(self, trial: Suggests, axis: Axis) -> Value:
        knob = axis.knob
        if axis.choices:
            choice: Value = trial.suggest_categorical(knob.name, axis.choices)
            return choice
        if axis.is_plain:
            return trial.suggest_int(knob.name, int(axis.low), int(axis.high))
        raw = trial.suggest_float(knob.name, axis.sampled_low, axis.high, log=knob.log)
        if axis.off and raw < axis.low:
            raw = 0.0
        value = _rounded(axis, raw)
        default = _number(self.default[knob.name])
        return default if value == _rounded(axis, default) else value


class _Given:
    """Stands in for a trial."""

    def __init__(self, params: Mapping[str, Any]) -> None:
        self._params = params

    def suggest_float(self, name: str, low: float, high: float, *, log: bool = False) -> float:
        del log
        return min(max(float(self._params[name]), low), high)

    def suggest_int(self, name: str, low: int, high: int) -> int:
        return min(max(int(self._params[name]), low), high)

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        del choices
        return self._params[name]


def make_space(
    knobs: Sequence[Knob],
    default: Setting,
    hosts: int = 1,
    *,
    tunable: Sequence[str] | None = None,
    fixed: Sequence[str] = (),
    ranges: Mapping[str, KnobRange] | None = None,
    scopes: Sequence[str] = LIVE_SCOPES,
    awaits_script: bool = False,
) -> Space:
    """The space of the knobs that can be tuned on this many hosts.

    A knob that a script declares is in it unless it changes results: such a one must be named.

    Args:
        knobs: the knob table.
        default: a complete setting: the one the run starts with. Ranges are widened to hold it.
        hosts: knobs that need more hosts have no effect and are left out.
        tunable: only these knobs; None for all, categories only where there are several hosts:
            within one, tensors go through shared memory.
        fixed: knobs that keep their default.
        ranges: narrower ranges or choices than the table's. Choices of a category that change the
            bits of a result are searched only when they are listed there.
        scopes: of knobs; those of another scope than "live" need a start of the script for each
            setting.
        awaits_script: names of a script's knobs may be unknown, since the script has not run yet,
            and it may be that only they are left to tune.

    Raises:
        UsageError: a name is unknown or cannot be tuned here, or nothing is left to tune.
    """
    table = {knob.name: knob for knob in knobs}
    ranges = ranges or {}
    for name in (*(tunable or ()), *fixed, *ranges):
        if name not in table and not (awaits_script and is_of_script(name)):
            raise UsageError(f"unknown knob {name}; the knobs are {', '.join(table)}")
    for name in (*(tunable or ()), *ranges):
        if name in table:
            _check_tunable(table[name], hosts, scopes)
    complete = validate(default, knobs)
    missing = [name for name in table if name not in complete]
    if missing:
        raise UsageError(f"the start setting lacks {', '.join(missing)}")

    def is_searched(knob: Knob) -> bool:
        if knob.scope not in scopes or knob.min_hosts > hosts or knob.name in fixed:
            return False
        if tunable is not None:
            return knob.name in tunable
        if knob.is_of_script:
            return not knob.changes_results or knob.name in ranges
        return knob.kind != "category" or hosts > 1 or knob.name in ranges

    axes = [
        _axis(knob, complete[knob.name], ranges.get(knob.name, KnobRange()))
        for knob in knobs
        if is_searched(knob)
    ]
    axes = [axis for axis in axes if len(axis.choices) > 1 or axis.low < axis.high]
    if not axes and not (awaits_script and any(map(is_of_script, tunable or ()))):
        raise UsageError("no knob is left to tune")
    return Space(tuple(axes), complete)


def key_of(setting: Setting) -> str:
    """Equal for settings with equal values; JSON, knobs sorted by name."""
    return json.dumps(dict(setting), sort_keys=True)


def describe(setting: Setting, default: Mapping[str, Value]) -> str:
    """Describe in one line how a setting differs from the default."""
    changed = [
        f"{name}={shown(name, value)}"
        for name, value in setting.items()
        if value != default.get(name)
    ]
    return ", ".join(changed) or "default"


def shown(name: str, value: Value) -> str:
    """A knob's value for people; sizes are those of knobs named `..._bytes`."""
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if name.endswith("_bytes") and value >= 2**10:
        return sized(value)
    return str(value) if isinstance(value, int) else f"{value:.4g}"


def _check_tunable(knob: Knob, hosts: int, scopes: Sequence[str]) -> None:
    if knob.scope not in scopes:
        raise UsageError(
            f"{knob.name} cannot change in a live run. Tune it with `hvdtune run --mode restart`"
        )
    if knob.min_hosts > hosts:
        raise UsageError(f"{knob.name} has no effect on fewer than {knob.min_hosts} hosts")


def _axis(knob: Knob, default: Value, wanted: KnobRange) -> Axis:
    choices = wanted.choices
    if knob.is_of_script:
        if wanted.low is not None or wanted.high is not None:
            raise UsageError(f"{knob.name} takes a list of choices, not a range")
        choices = tuple(find_value(knob.name, each, knob.choices) for each in choices)
        choices = choices or knob.choices
    if not choices and knob.kind == "bool":
        choices = (False, True)
    elif not choices and knob.kind == "category":
        other = OTHER_BITS.get(knob.name, frozenset())
        choices = tuple(choice for choice in knob.choices if str(choice) not in other)
    if choices:
        return Axis(knob, choices if default in choices else (default, *choices))
    start = _number(default)
    low = knob.low if wanted.low is None else wanted.low
    high = max(knob.high if wanted.high is None else wanted.high, start)
    off = knob.log and (low == 0 or start == 0)
    if knob.log and low == 0:
        low = high / 2.0**_OCTAVES_BELOW_HIGH
    return Axis(knob, (), min(low, start) if start > 0 or not knob.log else low, high, off)


def _holds(axis: Axis, value: Value) -> bool:
    if axis.choices:
        return value in axis.choices
    return axis.low <= _number(value) <= axis.high or (axis.off and value == 0)


def _levels(axis: Axis, count: int) -> list[Value]:
    if axis.choices:
        return list(axis.choices)
    shares = [index / (count - 1) for index in range(count)]
    if axis.knob.log:
        span = math.log(axis.high / axis.sampled_low)
        return [min(axis.sampled_low * math.exp(share * span), axis.high) for share in shares]
    values = [axis.low + share * (axis.high - axis.low) for share in shares]
    return sorted({round(value) for value in values}) if axis.is_plain else list(values)


def _number(value: Value) -> float:
    assert not isinstance(value, str)
    return value


def _rounded(axis: Axis, value: float) -> Value:
    knob = axis.knob
    if value <= 0:
        return 0 if knob.kind == "int" else 0.0
    if knob.kind == "int":
        quarter_octave = 2.0 ** (math.floor(math.log2(value)) - 2)
        whole = round(round(value / quarter_octave) * quarter_octave)
        return int(min(max(math.ceil(axis.low), whole), math.floor(axis.high)))
    return min(max(float(f"{value:.2g}"), axis.low), axis.high)
