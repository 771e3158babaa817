import pytest

from hvdtune.core.config import knobs
from hvdtune.core.config.knobs import parse_assignments, validate
from hvdtune.errors import UsageError
from tests.kit.simulated_job import DEFAULT, KNOBS


@pytest.mark.parametrize(
    ("name", "given", "taken"),
    [("cycle_time_ms", 2, 2.0), ("chunk_bytes", 65536.0, 65536), ("cache_enabled", 1, True)],
)
def test_a_value_takes_its_knobs_type(name: str, given: knobs.Value, taken: knobs.Value) -> None:
    setting = validate({name: given}, KNOBS)

    assert setting == {name: taken}
    assert type(setting[name]) is type(taken)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"cycle_time": 1.0}, "unknown knob cycle_time; the knobs are fusion_threshold_bytes"),
        ({"cycle_time_ms": 51.0}, "cycle_time_ms = 51 is out of range: 0 to 50 ms"),
        ({"cycle_time_ms": float("nan")}, "is not a number"),
        ({"chunk_bytes": 70000.5}, "chunk_bytes = 70000.5 is not a whole number"),
        ({"cache_enabled": 2}, "cache_enabled = 2 is not true or false"),
        ({"cycle_time_ms": True}, "cycle_time_ms = True is not a number"),
    ],
)
def test_a_value_that_does_not_fit_is_named(setting: dict[str, knobs.Value], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        validate(setting, KNOBS)


def test_assignments_are_read_from_the_command_line() -> None:
    texts = ["cycle_time_ms=2.5", "fusion_threshold_bytes=0", "cache_enabled=off"]

    assert parse_assignments(texts, KNOBS) == {
        "cycle_time_ms": 2.5,
        "fusion_threshold_bytes": 0,
        "cache_enabled": False,
    }


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["cycle_time_ms"], "'cycle_time_ms' is not of the form knob=value"),
        (["cycle_time_ms=fast"], "cycle_time_ms = 'fast' is not a number$"),
        (["chunk_bytes=1.5"], "chunk_bytes = '1.5' is not a whole number"),
        (["cache_enabled=maybe"], "cache_enabled = 'maybe' is not true or false"),
        (["x=1"], "unknown knob x"),
        (["cycle_time_ms=1", "cycle_time_ms=2"], "cycle_time_ms has two values"),
    ],
)
def test_a_wrong_assignment_is_a_usage_error(texts: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=f"^{message}"):
        parse_assignments(texts, KNOBS)


def test_the_default_setting_holds_every_knob() -> None:
    assert list(DEFAULT) == [knob.name for knob in KNOBS]


def test_an_unknown_name_of_the_module_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'KNOB'"):
        _ = knobs.KNOB
