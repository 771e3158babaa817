"""The scripts and commands of docs/tensorflow.md work."""

from pathlib import Path

import pytest

from tests.kit.pages import Page, words_of
from tests.kit.programs import run_cli

PAGE = Page("docs/tensorflow.md")


def run(folder, *words):
    variables = {"TF_CPP_MIN_LOG_LEVEL": "3", "HVDTUNE_START_TIMEOUT_S": "100"}
    return run_cli(*words, folder=folder, **variables).stdout


@pytest.mark.parametrize("name", [pytest.param("tape", marks=pytest.mark.slow), "fit"])
def test_a_script_of_the_page_trains_on_two_ranks(tmp_path, name):
    (tmp_path / "train.py").write_text(PAGE.block(name))
    assert "[0]<stdout>:ranks: 2" in run(tmp_path, "run", "-np", "2", "train.py")


@pytest.mark.slow
def test_the_commands_of_the_page_say_where_the_library_is(tmp_path):
    first, second = (run(tmp_path, *words_of(line)) for line in PAGE.block("build").splitlines())
    assert first == second
    assert Path(first.split()[-1]).is_file()
