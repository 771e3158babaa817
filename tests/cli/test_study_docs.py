"""The commands of docs/tuning-studies.md work, in their order, on a study of two trials."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

from stored_study import make_study

PAGE = (Path(__file__).parents[2] / "docs" / "tuning-studies.md").read_text()


def test_the_commands_of_the_page_work(tmp_path):
    make_study(tmp_path / "runs" / "train-1")
    text = re.search(r"<!-- docs-test: commands -->\n```\w+\n(.*?)```", PAGE, re.DOTALL)[1]
    for command in text.splitlines():
        words = shlex.split(command)
        done = subprocess.run(
            [sys.executable, "-m", *words], cwd=tmp_path, capture_output=True, text=True
        )
        assert done.returncode == 0, (command, done.stderr)
    assert not (tmp_path / "runs" / "train-1").exists()
    assert (tmp_path / "train.json").exists()
