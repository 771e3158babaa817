import re
from pathlib import Path

import pytest

import hvdtune
from hvdtune.core.config.environment import Config
from hvdtune.core.config.knobs import load_knobs
from hvdtune.core.config.launched import OWN_PLACE
from hvdtune.core.config.own_variables import VARIABLES, misspelt

# What hvdtune's programs tell each other, and what its tests ask for.
_INTERNAL = {
    *OWN_PLACE, "HVDTUNE_FAILPOINT", "HVDTUNE_LAUNCHED", "HVDTUNE_SCRIPT_KNOBS",
    "HVDTUNE_TRAINING_PYTHON",
}  # fmt: skip
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
    (sentence,) = Config.from_environ({name: "3"}).vain
    assert sentence == (
        f"{name} is no variable of hvdtune's and changes nothing: did you mean {meant}?"
    )


def test_a_variable_of_the_users_own_is_left_alone():
    environ = {"HVDTUNE_EXPERIMENT": "a", "HVDTUNE_NODES": "1", "HVDTUNE_RANK": "0", "HVDTUNE": "1"}
    assert not [*misspelt(environ, ())]
