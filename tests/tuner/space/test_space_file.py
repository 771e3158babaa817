import dataclasses
from pathlib import Path
from typing import Any

import pytest

from hvdtune.core.config.knobs import Knob
from hvdtune.errors import UsageError
from hvdtune.tuner.space.search_space import KnobRange, make_space
from hvdtune.tuner.space.space_file import parse_space, read_space
from tests.kit.simulated_job import DEFAULT, KNOBS

ALGORITHM = Knob("allreduce_algorithm", "", "category", 0, 3, False, "auto", "live")
TABLE = (*KNOBS, dataclasses.replace(ALGORITHM, choices=("auto", "direct", "chain", "ring")))


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("fusion_threshold_bytes: {low: 1 MiB, high: 256MiB}", KnobRange(2**20, 2**28)),
        ("cycle_time_ms: {high: 10}", KnobRange(None, 10.0)),
        ("chunk_bytes: [64 KiB, 1048576]", KnobRange(choices=(65536, 2**20))),
        ("cache_enabled: {choices: [true]}", KnobRange(choices=(True,))),
    ],
)
def test_ranges_and_choices_are_read(tmp_path: Path, line: str, wanted: KnobRange) -> None:
    path = tmp_path / "space.yaml"
    path.write_text(f"allreduce_algorithm: [ring]\n{line}\n")
    expected = {"allreduce_algorithm": KnobRange(choices=("ring",)), line.partition(":")[0]: wanted}
    assert read_space(path, TABLE) == expected


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("cycle: [1]", "unknown knob cycle; the knobs are fusion_threshold_bytes"),
        ("cycle_time_ms: {low: 5, high: 2}", "cycle_time_ms: low 5 is above high 2"),
        ("cycle_time_ms: {low: 5, log: no}", "cycle_time_ms takes low, high and choices, not log"),
        ("cycle_time_ms: {high: 99}", "cycle_time_ms = 99 is out of range: 0 to 50 ms"),
        ("cycle_time_ms: {high: .nan}", "cycle_time_ms = nan is not a number"),
        ("cycle_time_ms: 5", "cycle_time_ms needs {low: .., high: ..} or a list"),
        ("cycle_time_ms: []", "the list of choices of cycle_time_ms is empty"),
        ("cycle_time_ms: [[1]]", "cycle_time_ms: [1] must be a number"),
        ("chunk_bytes: [64 MB]", "chunk_bytes: '64 MB' is not a size, such as 64 MiB"),
        ("cache_enabled: {low: 0}", "cache_enabled takes a list of choices, not a range"),
        ("cache_enabled: [1]", "cache_enabled = 1 is not true or false"),
        ("allreduce_algorithm: [magic]", "allreduce_algorithm = 'magic' is not one of auto"),
        ("[1, 2", "expected ',' or ']'"),
    ],
)
def test_a_bad_line_is_named_with_its_number(line: str, message: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse_space(f"\n# space\n{line}\n", TABLE, "space.yaml")
    assert str(raised.value).startswith("space.yaml:")
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_every_bad_line_has_an_error_of_its_own() -> None:
    text = "cycle: [1]\nchunk_bytes: [64 KiB]\nchunk_bytes: [1 MiB]\ncache_enabled: yes please\n"
    with pytest.raises(UsageError) as raised:
        parse_space(text, TABLE, "s")
    lines = str(raised.value).splitlines()
    assert [line.partition(" ")[0] for line in lines] == ["s:1:", "s:3:", "s:4:"]
    assert lines[1] == "s:3: chunk_bytes is specified twice"


@pytest.mark.parametrize(
    ("text", "message"), [("", "contains no knob"), ("- a", "not of the form")]
)
def test_a_file_that_is_no_space_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_space(text, TABLE, "space.yaml")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read .*none\.yaml: No such file"):
        read_space(tmp_path / "none.yaml", TABLE)


@pytest.mark.parametrize(
    ("wanted", "inside", "outside"),
    [
        (KnobRange(4.0, 8.0), (1.0, 3.0, 8.0), (0.0, 0.5, 9.0)),
        (KnobRange(0.1, 0.5), (0.1, 0.9, 1.0), (0.0, 2.0)),
        (KnobRange(0.0, 0.5), (0.0, 0.001, 1.0), (2.0,)),
        (KnobRange(choices=(0.0, 5.0)), (0.0, 5.0, 1.0), (2.0,)),
    ],
)
def test_a_range_is_widened_to_hold_the_default(
    wanted: KnobRange, inside: tuple[float, ...], outside: tuple[float, ...]
) -> None:
    space = make_space(KNOBS, DEFAULT, ranges={"cycle_time_ms": wanted})

    assert space.holds(DEFAULT)
    assert all(space.holds({**DEFAULT, "cycle_time_ms": value}) for value in inside)
    assert not any(space.holds({**DEFAULT, "cycle_time_ms": value}) for value in outside)


LISTED = {"allreduce_algorithm": KnobRange(choices=("auto", "ring"))}


@pytest.mark.parametrize(
    ("options", "choices"),
    [
        ({"tunable": ["allreduce_algorithm"]}, ("auto", "direct", "chain")),
        pytest.param({"ranges": LISTED}, ("auto", "ring"), id="listed"),
    ],
)
def test_choices_that_change_bits_are_searched_only_when_listed(
    options: dict[str, Any], choices: tuple[str, ...]
) -> None:
    axis = make_space(TABLE, {**DEFAULT, "allreduce_algorithm": "auto"}, **options).axes[-1]

    assert (axis.knob.name, axis.choices) == ("allreduce_algorithm", choices)
