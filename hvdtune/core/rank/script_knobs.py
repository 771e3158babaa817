"""Knobs of the script's own: values that the tuner may change while the script runs.

A script asks for a value in every step. All ranks get the same one, and it changes on all of them
at one step boundary (`csrc/runtime/steering/step_switch.h`). Without a tuner it is always the
first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from hvdtune.core.rank.process import PROCESS
from hvdtune.errors import MismatchError, UsageError

if TYPE_CHECKING:
    from hvdtune.core import _native

Choice = TypeVar("Choice", bool, int, float, str)

_UNREAD = -1


@dataclass
class ScriptKnob:
    """A knob that this process has declared in its job; `value` is that of `version`."""

    values: tuple[bool | int | float | str, ...]
    changes_results: bool
    value: bool | int | float | str
    version: int = _UNREAD


def knob(name: str, values: Sequence[Choice], *, changes_results: bool = False) -> Choice:
    """The value that this step is to use, the same on all ranks.

    Ask for it in every step, where it is used. It changes between steps only, where the step
    boundary is the end of `optimizer.step()` (or `mark_step`), and only when a tuner or
    `hvdtune compare` is at work, or a profile or `--fix` names the knob. Otherwise it is the first
    of the values.

    The first call in a job is a collective of all ranks, since they must declare the same knobs in
    the same order.

    Args:
        name: up to 64 letters, digits and _, as in "accumulate"; elsewhere it is
            "script.accumulate".
        values: what may be chosen: numbers, texts, or True and False; the first is the default.
        changes_results: whether the training's results depend on the value. The tuner then leaves
            it alone unless `--knobs` or `--space` names the knob.

    Raises:
        UsageError: the name or a value cannot be, the knob was declared with other values before,
            the setting in use has a value that is not one of them, or `init` has not been called.
        MismatchError: another rank declares another knob, or this one otherwise.
    """
    native = PROCESS.native()
    found = PROCESS.script_knobs.get(name)
    if found is None:
        found = PROCESS.script_knobs[name] = _declared(native, name, values, changes_results)
    elif found.values != tuple(values):
        raise UsageError(f"knob {name} was already declared with other values in this script")
    elif found.changes_results != changes_results:
        before = f"changes_results={found.changes_results}"
        raise UsageError(f"knob {name} was already declared with {before} in this script")
    version = native.script_version()
    if version != found.version:
        found.value = _value_in_force(native, name, found.values)
        found.version = version
    return found.value  # type: ignore[return-value]  # it is one of the values


def variant(name: str, *, changes_results: bool = False) -> bool:
    """Return whether this step uses the code variant of this name; False by default.

    A `knob` with the values False and True; `hvdtune compare train.py --variant NAME` measures
    which of the two is faster.

    Raises:
        As `knob` does.
    """
    return knob(name, (False, True), changes_results=changes_results)


def _declared(
    native: _native.Runtime, name: str, values: Sequence[Choice], changes_results: bool
) -> ScriptKnob:
    # Loaded where a script has knobs, as the rest of the configuration.
    from hvdtune.core.config import script_knobs

    script_knobs.check_name(name)
    checked = script_knobs.check_values(name, values)
    line = script_knobs.declaration(name, checked, changes_results=changes_results)
    if PROCESS.told("size") > 1:
        _check_alike(line)
    if PROCESS.told("rank") == 0:
        native.declare(line)
    return ScriptKnob(checked, changes_results, checked[0])


def _check_alike(line: str) -> None:
    """Raises MismatchError on every rank if one has another line."""
    import json

    from hvdtune.core.rank import handles

    number = len(PROCESS.script_knobs)
    # If a rank declares nothing, the others' hang report shows this name.
    name = f"hvd.knob, declaration {number + 1} (required on every rank)"
    lines = [text.decode() for text in handles.gather_lines(name, line.encode())]
    for rank, other in enumerate(lines):
        if other != lines[0]:
            first, differing = json.loads(lines[0]), json.loads(other)
            raise MismatchError(
                f"the ranks declare different knobs: rank 0 declares {_shown(first)}, rank {rank} "
                f"{_shown(differing)}. Declare the same knobs with the same values, in the same "
                "order, on every rank",
                rank,
            )


def _shown(content: dict[str, object]) -> str:
    more = ", changes_results=True" if content["changes_results"] else ""
    return f"knob({content['name']!r}, {content['values']}{more})"


def _value_in_force(
    native: _native.Runtime, name: str, values: tuple[bool | int | float | str, ...]
) -> bool | int | float | str:
    from hvdtune.core.config import script_knobs

    full = script_knobs.PREFIX + name
    in_force = native.script_values()
    if full not in in_force:
        return values[0]
    return script_knobs.find_value(full, in_force[full], values)
