"""The commands of docs/tuning-studies.md work, in their order, on a study of two trials."""

from tests.cli.stored_study import make_study
from tests.kit.pages import Page, words_of
from tests.kit.programs import run_cli

PAGE = Page("docs/tuning-studies.md")


def test_the_commands_of_the_page_work(tmp_path):
    make_study(tmp_path / "runs" / "train-1")
    for command in PAGE.commands():
        run_cli(*words_of(command), folder=tmp_path)
    assert not (tmp_path / "runs" / "train-1").exists()
    assert (tmp_path / "train.json").exists()
