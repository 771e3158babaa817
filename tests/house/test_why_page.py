"""The commands of docs/why.md do what the page says."""

import json
import re

from hvdtune.timeline.analysis.findings.finding import KINDS
from tests.kit.pages import Page, words_of
from tests.kit.programs import run_cli

PAGE = Page("docs/why.md")


def test_the_commands_of_the_page_find_the_slow_rank(tmp_path):
    (tmp_path / "train.py").write_text(PAGE.block("script"))
    said = {line: run_cli(*words_of(line), folder=tmp_path).stdout for line in PAGE.commands()}
    answer = json.loads(said["hvdtune timeline why --json trace.json"])
    found = {(row["kind"], tuple(row["ranks"])) for row in answer["findings"]}
    assert ("slow-input", (1,)) in found
    assert "rank 1 waits for input" in said["hvdtune timeline why trace.json"]
    assert "No difference" in said["hvdtune timeline diff trace.json trace.json"]
    assert (tmp_path / "trace.html").stat().st_size > 5000


def test_the_page_names_every_kind_of_finding():
    named = set(re.findall(r"^\| (`[a-z-]+`(?:, `[a-z-]+`)*) \|", PAGE.text, re.MULTILINE))
    kinds = {kind for cell in named for kind in re.findall(r"[a-z-]+", cell)}
    assert kinds == KINDS
