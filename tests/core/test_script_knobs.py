"""What settings, command lines and the environment say of a script's knobs."""

import pytest

from hvdtune.core.config import script_knobs
from hvdtune.core.config.environment import read_setting
from hvdtune.core.config.knobs import load_knobs, parse_assignments, read_declaration, validate
from hvdtune.errors import UsageError
from hvdtune.launcher.ranks import setting_environ

DECLARED = read_declaration(script_knobs.declaration("rate", (1, 0.5), changes_results=True))


@pytest.mark.parametrize(
    ("text", "value"),
    [("4", 4), ("0.5", 0.5), ("True", True), ("false", False), ("zstd", "zstd"), ("[1]", "[1]")],
)
def test_a_value_on_a_command_line_is_what_it_looks_like(text, value):
    parsed = parse_assignments([f"script.rate={text}"])["script.rate"]
    assert (parsed, type(parsed)) == (value, type(value))


def test_a_setting_reaches_the_ranks_by_the_environment():
    setting = {"cycle_time_ms": 2.0, "script.rate": 0.5, "script.fused": True, "script.way": "é"}
    environ = setting_environ(setting)
    assert set(environ) == {"HVDTUNE_CYCLE_TIME_MS", script_knobs.VARIABLE}
    assert read_setting(environ) == setting


@pytest.mark.parametrize(
    "text", ["x", "[]", '{"rate": 1}', '{"script.a b": 1}', '{"script.a": []}']
)
def test_a_variable_that_is_none_is_refused(text):
    with pytest.raises(UsageError):
        read_setting({script_knobs.VARIABLE: text})


def test_once_a_script_has_declared_its_knobs_there_are_no_others():
    assert validate({"script.other": 3}) == {"script.other": 3}
    table = [*load_knobs(), DECLARED]
    value = validate({"script.rate": 1.0}, table)["script.rate"]
    assert (value, type(value)) == (1, int)
    with pytest.raises(UsageError, match=r"unknown knob script\.other; .* script\.rate"):
        validate({"script.other": 3}, table)
    with pytest.raises(
        UsageError, match=r"script\.rate = 3 is not one of the script's values: 1, 0\.5"
    ):
        validate({"script.rate": 3}, table)
    assert DECLARED.changes_results
