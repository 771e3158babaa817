"""The commands of docs/tuning-search.md work."""

import pytest

from tests.kit.pages import Page, words_of
from tests.kit.programs import run_cli

PAGE = Page("docs/tuning-search.md")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("command", PAGE.commands())
def test_a_command_of_the_page_works(command, tmp_path):
    (tmp_path / "train.py").write_text(PAGE.block("script"))
    (tmp_path / "space.yaml").write_text(PAGE.block("space.yaml"))
    *options, script = words_of(command)
    done = run_cli(*options, "-o", "study", script, folder=tmp_path, codes=(0, 3, 4))
    assert "verdict: " in done.stdout, done.stderr
    report = (tmp_path / "study" / "report.md").read_text()
    assert "It ended because" in report
    assert ("## Pareto set" in report) == (command.count("--objective") > 1)
