"""The page for Horovod's users does what it says."""

import pytest

from tests.kit import scripts
from tests.kit.pages import Page, words_of

PAGE = Page("docs/migrating-from-horovod.md")
COMMANDS = PAGE.commands()


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_page_works(python, command):
    words = words_of(command)
    assert words[-1] == "train.py"
    assert "ranks: 2" in python(scripts.MEET.format(steps=5), under=words[:-1])


@pytest.mark.slow
def test_the_script_of_the_page_trains_on_two_ranks(python):
    out = python(PAGE.block("script"), under=words_of(COMMANDS[0])[:-1])
    assert "ranks: 2 loss is finite: True" in out


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (PAGE.block("line") + PAGE.block("script"), "ranks: 1 loss is finite: True\n"),
        pytest.param(PAGE.block("function"), "[10.0, 10.0]\n", marks=pytest.mark.slow),
    ],
    ids=["line", "function"],
)
def test_the_page_works_in_plain_python(python, body, said):
    assert python(body) == said
