"""The commands of docs/script-knobs.md work."""

import pytest

from tests.kit.pages import Page, words_of
from tests.kit.programs import run_cli

PAGE = Page("docs/script-knobs.md")


# tests/cli/test_compare_command.py compares in a script that loads no framework.
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("command", PAGE.commands())
def test_a_command_of_the_page_works(command, tmp_path):
    (tmp_path / "train.py").write_text(PAGE.block("script"))
    done = run_cli(*words_of(command), folder=tmp_path, codes=(0, 3, 4))
    assert "verdict: " in done.stdout, done.stderr
