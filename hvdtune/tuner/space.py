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

from hvdtune.core.knobs import Knob, Setting, Value, validate
from hvdtune.errors import UsageError

_OCTAVES_BELOW_HIGH = 13


class Suggests(Protocol):
    """The part of an Optuna trial that a space needs."""

    def suggest_float(self, name: str, low: float, high: float, *, log: bool = ...) -> float: ...
    def suggest_int(self, name: str, low: int, high: int) -> int: ...
    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any: ...


@dataclass(frozen=True)
class Space:
    """The tunable knobs around a complete default setting."""

    knobs: tuple[Knob, ...]
    default: Setting

    def suggest(self, trial: Suggests) -> dict[str, Value]:
        """A complete setting from the trial; knobs outside the space keep their default."""
        setting = dict(self.default)
        for knob in self.knobs:
            setting[knob.name] = self._suggest_knob(trial, knob)
        return setting

    def params_of(self, setting: Setting) -> dict[str, Value]:
        """The parameters with which `suggest` returns this setting, for Study.enqueue_trial."""
        params: dict[str, Value] = {}
        for knob in self.knobs:
            value = setting[knob.name]
            if _is_plain(knob):
                params[knob.name] = value
            elif value == 0:
                params[knob.name] = self._sampled_low(knob)
            else:
                params[knob.name] = float(value)
        return params

    def signature(self) -> str:
        """One line that is equal for equal spaces around equal defaults."""
        knobs = [[knob.name, knob.low, knob.high, knob.log] for knob in self.knobs]
        return json.dumps({"knobs": knobs, "default": dict(self.default)}, sort_keys=True)

    def _suggest_knob(self, trial: Suggests, knob: Knob) -> Value:
        if knob.kind == "category":
            return str(trial.suggest_categorical(knob.name, knob.choices))
        if knob.kind == "bool":
            return bool(trial.suggest_categorical(knob.name, (False, True)))
        if _is_plain(knob):
            return trial.suggest_int(knob.name, int(knob.low), int(knob.high))
        raw = trial.suggest_float(knob.name, self._sampled_low(knob), knob.high, log=knob.log)
        if _has_off(knob) and raw < 2 * self._sampled_low(knob):
            raw = 0.0
        value = _rounded(knob, raw)
        default = _number(self.default[knob.name])
        return default if value == _rounded(knob, default) else value

    def _sampled_low(self, knob: Knob) -> float:
        if not _has_off(knob):
            return knob.low
        default = _number(self.default[knob.name])
        smallest = knob.high / 2.0**_OCTAVES_BELOW_HIGH
        return min(smallest, default if default > 0 else smallest) / 2


def make_space(
    knobs: Sequence[Knob],
    default: Setting,
    hosts: int = 1,
    tunable: Sequence[str] | None = None,
    fixed: Sequence[str] = (),
    *,
    restarts: bool = False,
) -> Space:
    """The space of the knobs that can be tuned in a live run on this many hosts.

    Args:
        knobs: the knob table.
        default: a complete setting: the one the run starts with.
        hosts: knobs that need more hosts have no effect and are left out.
        tunable: only these knobs; None for all but categories: their choices may change the
            bits of a result.
        fixed: knobs that keep their default.
        restarts: the run is started anew for every setting, so that `tunable` may name every knob.

    Raises:
        UsageError: a name is unknown or cannot be tuned live, or nothing is left to tune.
    """
    table = {knob.name: knob for knob in knobs}
    for name in (*(tunable or ()), *fixed):
        if name not in table:
            raise UsageError(f"unknown knob {name}; the knobs are {', '.join(table)}")
    for name in tunable or ():
        if table[name].scope != "live" and not restarts:
            raise UsageError(
                f"{name} cannot change in a live run and so cannot be tuned; --mode restart can"
            )
    chosen = tuple(
        knob
        for knob in knobs
        if (knob.scope == "live" or (restarts and tunable is not None))
        and knob.min_hosts <= hosts
        and (knob.kind != "category" if tunable is None else knob.name in tunable)
        and knob.name not in fixed
    )
    if not chosen:
        raise UsageError("no knob is left to tune")
    complete = validate(default, knobs)
    missing = [name for name in table if name not in complete]
    if missing:
        raise UsageError(f"the start setting lacks {', '.join(missing)}")
    return Space(chosen, complete)


def key_of(setting: Setting) -> str:
    """Equal for settings with equal values; JSON, knobs sorted by name."""
    return json.dumps(dict(setting), sort_keys=True)


def describe(setting: Setting, default: Mapping[str, Value]) -> str:
    """What differs from the default, in one line."""
    changed = [
        f"{name}={shown(name, value)}"
        for name, value in setting.items()
        if value != default.get(name)
    ]
    return ", ".join(changed) or "default"


def shown(name: str, value: Value) -> str:
    """A knob's value for people; sizes are those of knobs named `..._bytes`."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if name.endswith("_bytes"):
        for unit, size in (("MiB", 2**20), ("KiB", 2**10)):
            if value >= size:
                return f"{value / size:.4g} {unit}"
    return str(value) if isinstance(value, int) else f"{value:.4g}"


def _has_off(knob: Knob) -> bool:
    return knob.log and knob.low == 0


def _is_plain(knob: Knob) -> bool:
    return knob.kind in ("bool", "category") or (knob.kind == "int" and not knob.log)


def _number(value: Value) -> float:
    assert not isinstance(value, str)
    return value


def _rounded(knob: Knob, value: float) -> Value:
    if value <= 0:
        return 0 if knob.kind == "int" else 0.0
    if knob.kind == "int":
        quarter_octave = 2.0 ** (math.floor(math.log2(value)) - 2)
        whole = round(value / quarter_octave) * quarter_octave
        return int(min(max(math.ceil(knob.low), whole), knob.high))
    return min(max(float(f"{value:.2g}"), knob.low), knob.high)
