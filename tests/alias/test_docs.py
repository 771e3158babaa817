"""The page for Horovod's users does what it says."""

import re
import shlex
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "migrating-from-horovod.md").read_text()


def block(name):
    return re.search(rf"<!-- docs-test: {name} -->\n```\w+\n(.*?)```", PAGE, re.DOTALL)[1]


@pytest.mark.parametrize("command", block("commands").splitlines())
def test_a_command_of_the_page_works(python, command):
    program, *words = shlex.split(command)
    assert program == "hvdtune" and words[-1] == "train.py"
    assert "ranks: 2 loss is finite: True" in python(block("script"), under=words[:-1])


def test_the_line_for_plain_python_works(python):
    out = python(block("line") + block("script"))
    assert out == "ranks: 1 loss is finite: True\n"


def test_the_function_of_the_page_returns_what_it_says(python):
    assert python(block("function")) == "[10.0, 10.0]\n"
