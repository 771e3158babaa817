"""docs/horovodrun.md says of every option and variable what the code does."""

import re
from pathlib import Path

import pytest
import yaml

from hvdtune.cli.app import app
from hvdtune.cli.config_file import KEYS
from hvdtune.cli.run_command import horovod_rows
from hvdtune.horovod.vocabulary import VARIABLES, Idle, Refused, Sets
from tests.kit.horovod_build import BUILD_TIME

PAGE = (Path(__file__).parents[2] / "docs" / "horovodrun.md").read_text()
ROWS = dict(re.findall(r"^\| (`.+?`(?:, `.+?`)*) \| (.+) \|$", PAGE, re.MULTILINE))
OPTIONS = {option.name: option for option in app.commands["run"].params}


def spelled(name):
    option = OPTIONS[name]
    return ", ".join(f"`{spelling}`" for spelling in (*option.opts, *option.secondary_opts))


def test_every_option_and_variable_has_its_row_and_no_row_is_of_another():
    options = {spelled(name) for name in horovod_rows()}
    assert {*ROWS} == options | {f"`{row.variable}`" for row in VARIABLES}


EFFECTS = {name: effect for name, (_, effect) in horovod_rows().items()}
ON_THE_PAGE = {n: e for n, e in EFFECTS.items() if isinstance(e, (Sets, Idle, Refused))}


@pytest.mark.parametrize(("name", "effect"), ON_THE_PAGE.items(), ids=ON_THE_PAGE)
def test_the_page_says_what_becomes_of_an_option(name, effect):
    match effect:
        case Sets(variable=variable):
            said = f"`{variable}`"
        case Idle(why=why, said=warned):
            said = f"nothing to do: {why}" + "; prints a message" * warned
        case Refused(what=what):
            said = f"refused: {what}"
    assert ROWS[spelled(name)] == said


@pytest.mark.parametrize("row", VARIABLES, ids=lambda row: row.variable)
def test_the_page_says_what_becomes_of_a_variable(row):
    said = ROWS[f"`{row.variable}`"]
    if row.sets:
        assert said == f"`{row.sets}`"
    elif row.idle:
        assert said == f"nothing to do: {row.idle}"
    elif row.refused:
        assert said == f"refused: {row.refused.partition(';')[0]}"
    else:
        alone = "; refused without a launcher" if row.alone else ""
        assert said == f"the launcher: {row.launcher}{alone}"


@pytest.mark.parametrize("name", BUILD_TIME)
def test_every_variable_of_horovods_installation_is_named(name):
    assert f"`{name}`" in PAGE


def test_the_file_shown_has_every_key():
    document = yaml.safe_load(re.search(r"```yaml\n(.*?)```", PAGE, re.DOTALL)[1])
    keys = {"controller"}
    for section, entries in document.items():
        keys |= {f"{section}.{key}" for key in entries} if isinstance(entries, dict) else set()
    assert keys == set(KEYS)
