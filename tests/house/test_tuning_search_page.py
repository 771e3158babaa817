"""The commands of docs/tuning-search.md work."""

import pytest

from tests.kit import scripts
from tests.kit.pages import Page, words_of
from tests.kit.programs import run_cli

PAGE = Page("docs/tuning-search.md")


_TORCH = PAGE.block("script")
_PACED = scripts.PACED.format(steps=4000)
_FIRST, *_OTHERS = PAGE.commands()


# The README's command is run by a fast test.
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("command", "script"),
    [
        *((each, _PACED) for each in (_FIRST, *_OTHERS)),
        pytest.param(_FIRST, _TORCH, id="the script of the page"),
    ],
)
def test_a_command_of_the_page_works(command, script, tmp_path):
    (tmp_path / "train.py").write_text(script)
    (tmp_path / "space.yaml").write_text(PAGE.block("space.yaml"))
    *options, train = words_of(command)
    done = run_cli(*options, "-o", "study", train, folder=tmp_path, codes=(0, 3, 4))
    assert "verdict: " in done.stdout, done.stderr
    report = (tmp_path / "study" / "report.md").read_text()
    assert "It ended because" in report
    assert ("## Pareto set" in report) == (command.count("--objective") > 1)
