"""The commands of docs/why.md do what the page says."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

from hvdtune.timeline.analysis.findings.finding import KINDS

PAGE = (Path(__file__).parents[2] / "docs" / "why.md").read_text()


def block(name):
    return re.search(rf"<!-- docs-test: {name} -->\n```\w+\n(.*?)```", PAGE, re.DOTALL)[1]


def run(command, folder):
    words = shlex.split(command)
    assert words[0] == "hvdtune"
    done = subprocess.run(
        [sys.executable, "-m", "hvdtune", *words[1:]], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_commands_of_the_page_find_the_slow_rank(tmp_path):
    (tmp_path / "train.py").write_text(block("script"))
    said = {command: run(command, tmp_path) for command in block("commands").splitlines()}
    answer = json.loads(said["hvdtune timeline why --json trace.json"])
    found = {(row["kind"], tuple(row["ranks"])) for row in answer["findings"]}
    assert ("slow-input", (1,)) in found
    assert "rank 1 waits for input" in said["hvdtune timeline why trace.json"]
    assert "No difference" in said["hvdtune timeline diff trace.json trace.json"]
    assert (tmp_path / "trace.html").stat().st_size > 5000


def test_the_page_names_every_kind_of_finding():
    named = set(re.findall(r"^\| (`[a-z-]+`(?:, `[a-z-]+`)*) \|", PAGE, re.MULTILINE))
    kinds = {kind for cell in named for kind in re.findall(r"[a-z-]+", cell)}
    assert kinds == KINDS
