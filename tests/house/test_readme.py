"""The README's script and commands do what it says."""

import pytest

from tests.kit import scripts
from tests.kit.pages import Page, words_of
from tests.kit.programs import run_cli

README = Page("README.md")
COMMANDS = README.commands()
# The README's script runs once; importing torch for each command would take most of the time.
TRAINS = "hvdtune run -np 2 train.py"


def test_there_is_a_command_that_runs_the_script():
    assert TRAINS in COMMANDS


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_readme_works(command, tmp_path):
    script = README.block("script") if command == TRAINS else scripts.MEET.format(steps=5)
    (tmp_path / "train.py").write_text(script)
    words = words_of(command)
    done = run_cli(*words, folder=tmp_path)
    if "train.py" in words:
        ranks = 4 if "-H" in words else 2
        assert f"ranks: {ranks}" in done.stdout
    if "--timeline-filename" in words:
        assert (tmp_path / "trace.json").stat().st_size > 1000
