"""The README's script and commands do what it says."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

README = (Path(__file__).parents[2] / "README.md").read_text()


def block(name):
    return re.search(rf"<!-- docs-test: {name} -->\n```\w+\n(.*?)```", README, re.DOTALL)[1]


COMMANDS = [line for line in block("commands").splitlines() if line.strip()]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_readme_works(command, tmp_path):
    (tmp_path / "train.py").write_text(block("script"))
    words = shlex.split(command)
    assert words[0] == "hvdtune"
    done = subprocess.run(
        [sys.executable, "-m", "hvdtune", *words[1:]], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    if "train.py" in words:
        ranks = 4 if "-H" in words else 2
        assert f"ranks: {ranks}" in done.stdout
    if "--timeline-filename" in words:
        assert (tmp_path / "trace.json").stat().st_size > 1000
