import re
from pathlib import Path

import pytest

import hvdtune
from hvdtune.core.config.environment import Config, unknown_variables, worker_environ
from hvdtune.core.config.knobs import load_knobs
from hvdtune.core.config.own_variables import _INTERNAL, VARIABLES, unknown
from hvdtune.errors import UsageError

_NAME = re.compile(r'"(HVDTUNE_[A-Z_]*[A-Z])\b')


def test_the_table_has_every_variable_that_is_read():
    folder = Path(hvdtune.__file__).parent
    table = Path(hvdtune.core.config.own_variables.__file__)
    files = (path.read_text() for path in folder.rglob("*.py") if path != table)
    named = {name for text in files for name in _NAME.findall(text)}
    knobs = {f"HVDTUNE_{knob.name.upper()}" for knob in load_knobs()}
    assert named - knobs - _INTERNAL - set(VARIABLES) == set()
    assert set(VARIABLES) - named == set()


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("HVDTUNE_SHARED_FODLER", "HVDTUNE_SHARED_FOLDER"),
        ("HVDTUNE_CYCLE_TIME", "HVDTUNE_CYCLE_TIME_MS"),
        ("HVDTUNE_START_TIMEOUT", "HVDTUNE_START_TIMEOUT_S"),
    ],
)
def test_a_variable_with_nearly_the_name_of_another_is_named(name, meant):
    (sentence,) = Config.from_environ({name: "3"}).ignored
    assert sentence == (f"{name} is unknown and ignored. Did you mean {meant}?")


def test_any_other_variable_with_the_prefix_is_named():
    environ = {"HVDTUNE_NODE_RANK": "1", "HVDTUNE_NODES": "1", "HVDTUNE_RANK": "0", "HVDTUNE": "1"}
    assert [*unknown(environ | {"HVDTUNE_TEST_KILLS": "1"}, list)] == [
        "HVDTUNE_NODE_RANK is unknown and ignored. docs/reference.md lists all variables"
    ]


def test_what_a_launcher_has_told_its_ranks_do_not_tell_again():
    launcher = {"HVDTUNE_NODE_RANK": "1"}
    rank = worker_environ({"HVDTUNE_RANK": "0"}, launcher)
    assert unknown_variables(rank) == () and len(unknown_variables(launcher)) == 1
    assert len(unknown_variables(rank | {"HVDTUNE_CYCLE": "1"})) == 1


def test_the_rule_for_joined_ranks_is_one_of_two():
    assert Config.from_environ({"HVDTUNE_JOIN": "horovod"}).join_rule == "horovod"
    with pytest.raises(UsageError, match="HVDTUNE_JOIN=no"):
        Config.from_environ({"HVDTUNE_JOIN": "no"})
