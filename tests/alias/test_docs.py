"""The page for Horovod's users does what it says."""

import re
import shlex
from pathlib import Path

import pytest

from tests.house import light

PAGE = (Path(__file__).parents[2] / "docs" / "migrating-from-horovod.md").read_text()


def block(name):
    return re.search(rf"<!-- docs-test: {name} -->\n```\w+\n(.*?)```", PAGE, re.DOTALL)[1]


COMMANDS = block("commands").splitlines()


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_page_works(python, command):
    program, *words = shlex.split(command)
    assert program == "hvdtune" and words[-1] == "train.py"
    # The page's script runs once; importing torch for each command would take most of the time.
    script = block("script") if command == COMMANDS[0] else light.TRAIN.format(steps=5)
    assert "ranks: 2" in (out := python(script, under=words[:-1]))
    assert ("loss is finite: True" in out) == (command == COMMANDS[0])


def test_the_line_for_plain_python_works(python):
    out = python(block("line") + block("script"))
    assert out == "ranks: 1 loss is finite: True\n"


def test_the_function_of_the_page_returns_what_it_says(python):
    assert python(block("function")) == "[10.0, 10.0]\n"
