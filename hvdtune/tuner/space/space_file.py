"""`--space FILE`: which values of which knobs to search, as YAML.

    fusion_threshold_bytes: {low: 1 MiB, high: 256 MiB}
    cycle_time_ms: {high: 10}
    chunk_bytes: [256 KiB, 1 MiB]
    allreduce_algorithm: [auto, direct, ring]

Knobs that are not named keep the table's range. Knobs of the script (`script.accumulate: [1, 2]`)
have a list of choices, which is held to what the script declares once it runs.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from hvdtune import yaml_text
from hvdtune.core.config.knobs import Knob, Value, validate
from hvdtune.core.config.script_knobs import is_of_script
from hvdtune.errors import UsageError
from hvdtune.tuner.files import read_text, yaml_error
from hvdtune.tuner.space.search_space import KnobRange

_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([KMG]iB)")
_UNITS: Final = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_ENDS: Final = ("low", "high")


def read_space(path: Path, knobs: Sequence[Knob]) -> dict[str, KnobRange]:
    """The ranges by knob.

    Raises UsageError with one line, file and line number first, for each line that is wrong.
    """
    return parse_space(read_text(path), knobs, str(path))


def parse_space(text: str, knobs: Sequence[Knob], where: str) -> dict[str, KnobRange]:
    """`read_space` of a text; `where` stands for the file's name in errors."""
    table = {knob.name: knob for knob in knobs}
    found: dict[str, KnobRange] = {}
    errors = []
    for line, name, wanted in _entries(text, where):
        try:
            if isinstance(name, str) and is_of_script(name) and name not in table:
                found[name] = _range(_undeclared(name), wanted)
                continue
            if name not in table:
                raise UsageError(f"unknown knob {name}; the knobs are {', '.join(table)}")
            if name in found:
                raise UsageError(f"{name} is specified twice")
            found[name] = _range(table[name], wanted)
        except UsageError as error:
            errors.append(f"{where}:{line}: {error}")
    if errors:
        raise UsageError("\n".join(errors))
    if not found:
        raise UsageError(f"{where} contains no knob")
    return found


def _entries(text: str, where: str) -> list[tuple[int, Any, Any]]:
    try:
        node = yaml_text.compose(text)
        if node is None:
            return []
        if not isinstance(node, yaml_text.MappingNode):
            raise UsageError(f"{where}:{node.start_mark.line + 1}: not of the form `knob: range`")
        return [
            (
                key.start_mark.line + 1,
                yaml_text.value_of(key),
                yaml_text.value_of(value),
            )
            for key, value in node.value
        ]
    except yaml_text.YAMLError as error:
        raise yaml_error(where, error) from error
    except RecursionError as error:
        raise UsageError(f"{where} is nested too deeply to be a space") from error


def _range(knob: Knob, wanted: Any) -> KnobRange:
    if isinstance(wanted, Mapping) and set(wanted) == {"choices"}:
        wanted = wanted["choices"]
    if isinstance(wanted, list):
        if not wanted:
            raise UsageError(f"the list of choices of {knob.name} is empty")
        return KnobRange(choices=tuple(dict.fromkeys(_value(knob, each) for each in wanted)))
    if not isinstance(wanted, Mapping):
        raise UsageError(
            f"{knob.name} needs {{low: .., high: ..}} or a list of choices; a list of one value "
            "fixes the knob"
        )
    for key in wanted:
        if key not in _ENDS:
            raise UsageError(f"{knob.name} takes low, high and choices, not {key}")
    if knob.kind in ("bool", "category"):
        raise UsageError(f"{knob.name} takes a list of choices, not a range")
    ends = {key: float(_value(knob, value)) for key, value in wanted.items()}
    if len(ends) == 2 and ends["low"] > ends["high"]:
        raise UsageError(f"{knob.name}: low {wanted['low']} is above high {wanted['high']}")
    return KnobRange(ends.get("low"), ends.get("high"))


def _undeclared(name: str) -> Knob:
    return Knob(name, "", "category", 0, 0, False, "", "live")


def _value(knob: Knob, value: Any) -> Value:
    if knob.is_of_script:
        return validate({knob.name: value})[knob.name]
    if isinstance(value, str) and knob.name.endswith("_bytes"):
        size = _SIZE.fullmatch(value.strip())
        if size is None:
            raise UsageError(f"{knob.name}: {value!r} is not a size, such as 64 MiB")
        value = round(float(size[1]) * _UNITS[size[2]])
    if not isinstance(value, int | float | str):
        raise UsageError(f"{knob.name}: {value!r} must be a number, a text, true or false")
    if knob.kind == "bool" and not isinstance(value, bool):
        raise UsageError(f"{knob.name} = {value!r} is not true or false")
    return validate({knob.name: value}, [knob])[knob.name]
