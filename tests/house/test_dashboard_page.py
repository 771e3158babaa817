"""The commands of docs/dashboard.md work, and it names all pages."""

import re
import signal
import subprocess
import urllib.request

import pytest

from hvdtune.dashboard.pages import PAGES
from hvdtune.timeline import write_chrome
from tests.dashboard.synthetic import training_trace
from tests.kit import programs
from tests.kit.pages import Page, words_of

PAGE = Page("docs/dashboard.md")


@pytest.mark.parametrize("command", [line for line in PAGE.commands() if "PID" not in line])
def test_the_commands_show_something(command, tmp_path):
    run = tmp_path / "runs" / "train-1"
    run.mkdir(parents=True)
    (run / "run.json").write_text("{}")
    (tmp_path / "train-1").symlink_to(run)
    write_chrome(training_trace(), run / "trace.json")
    write_chrome(training_trace(), tmp_path / "other.json.gz")
    shown = subprocess.Popen(
        programs.hvdtune(*words_of(command), "--port", "0"),
        cwd=tmp_path,
        env=programs.environ(),
        stdout=subprocess.PIPE,
        text=True,
    )
    link = re.search(r"http://\S+", shown.stdout.readline())[0]
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    with opener.open(link) as answer:
        assert answer.status == 200
    shown.send_signal(signal.SIGINT)
    shown.communicate()
    assert shown.returncode == 0


def test_every_page_is_named():
    rows = re.findall(r"^\| ([A-Z][a-z ]+) \|", PAGE.text, re.MULTILINE)
    assert rows == [page.TITLE for page in PAGES.values()]
