"""The commands of docs/tuning-search.md work."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "tuning-search.md").read_text()


def block(name):
    return re.search(rf"<!-- docs-test: {name} -->\n```\w+\n(.*?)```", PAGE, re.DOTALL)[1]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("command", block("commands").splitlines())
def test_a_command_of_the_page_works(command, tmp_path):
    (tmp_path / "train.py").write_text(block("script"))
    (tmp_path / "space.yaml").write_text(block("space.yaml"))
    words = shlex.split(command)
    assert words[0] == "hvdtune"
    done = subprocess.run(
        [sys.executable, "-m", "hvdtune", *words[1:-1], "-o", "study", words[-1]],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert "verdict: " in done.stdout, done.stderr
    report = (tmp_path / "study" / "report.md").read_text()
    assert "It ended because" in report
    assert ("## Pareto set" in report) == (command.count("--objective") > 1)
