"""The guides' commands work, and they cover what the code has."""

import re

import pytest

from hvdtune.cli.why import EXIT_UNEXPLAINED
from hvdtune.timeline.analysis.findings.finding import KINDS
from tests.kit import scripts
from tests.kit.pages import Page, words_of
from tests.kit.programs import call_cli, run_cli

QUICKSTART = Page("docs/quickstart.md")


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(QUICKSTART.block("script"), id="of the page", marks=pytest.mark.slow),
        pytest.param(scripts.MEET.format(steps=30), id="without torch"),
    ],
)
def test_the_quickstart_does_what_it_says(script, tmp_path):
    (tmp_path / "train.py").write_text(script)
    *runs, why = QUICKSTART.commands()
    for command in runs:
        assert "ranks: 2" in run_cli(*words_of(command), folder=tmp_path).stdout
    answer = call_cli(*words_of(why), folder=tmp_path, codes=(0, EXIT_UNEXPLAINED))
    assert re.search(r"\d+ steps of ", answer)


def test_the_page_has_a_remedy_for_every_finding_and_for_no_other():
    recipes = re.findall(r"^### `([a-z-]+)`$", Page("docs/why.md").text, re.MULTILINE)
    assert len(recipes) == len(set(recipes))
    assert set(recipes) == KINDS


@pytest.mark.parametrize("verdict", ["improved", "unstable", "too noisy to decide"])
def test_the_page_of_verdicts_explains_each(verdict):
    assert f"| {verdict} |" in Page("docs/tuning-verdict.md").text
