"""The commands of docs/tuning-studies.md work, in their order, on a study of two trials."""

from tests.cli.stored_study import make_study
from tests.kit.pages import Page, words_of

PAGE = Page("docs/tuning-studies.md")


def test_the_commands_of_the_page_work(call, tmp_path):
    make_study(tmp_path / "runs" / "train-1")
    for command in PAGE.commands():
        code, _, err = call(*words_of(command))
        assert code == 0, (command, err)
    assert not (tmp_path / "runs" / "train-1").exists()
    assert (tmp_path / "train.json").exists()
