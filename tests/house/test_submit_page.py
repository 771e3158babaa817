"""The commands of docs/submit.md work, and print what the page shows."""

import re

import pytest

from tests.kit.pages import Page, words_of
from tests.kit.programs import call_cli

PAGE = Page("docs/submit.md")


@pytest.mark.parametrize("command", PAGE.commands())
def test_a_command_of_the_page_prints_a_batch_script(command, tmp_path):
    (tmp_path / "train.py").write_text("")
    assert call_cli(*words_of(command), folder=tmp_path).startswith("#!/bin/bash\n#")


def test_the_page_shows_the_script_of_its_first_command(tmp_path):
    (tmp_path / "train.py").write_text("")
    printed = call_cli(*words_of(PAGE.commands()[0]), folder=tmp_path)
    shown = re.search(r"```sh\n(#!/bin/bash.*?)```", PAGE.text, re.DOTALL)[1]
    shown = shown.replace("/home/ada/net", str(tmp_path))
    assert re.sub(r"\S+/bin/python\S*", "PYTHON", printed) == shown.replace(
        "/home/ada/envs/train/bin/python", "PYTHON"
    )
