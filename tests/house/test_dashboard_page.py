"""The commands of docs/dashboard.md work, and it names all pages."""

import re
import shlex
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from hvdtune.dashboard.pages import PAGES
from hvdtune.timeline import write_chrome
from tests.dashboard.synthetic import training_trace

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "dashboard.md").read_text()
COMMANDS = re.search(r"<!-- docs-test: commands -->\n```sh\n(.*?)```", PAGE, re.DOTALL)[1]


@pytest.mark.parametrize("command", [line for line in COMMANDS.splitlines() if "PID" not in line])
def test_the_commands_show_something(command, tmp_path):
    words = shlex.split(command, comments=True)
    assert words[0] == "hvdtune"
    run = tmp_path / "runs" / "train-1"
    run.mkdir(parents=True)
    (run / "run.json").write_text("{}")
    (tmp_path / "train-1").symlink_to(run)
    write_chrome(training_trace(), run / "trace.json")
    write_chrome(training_trace(), tmp_path / "other.json.gz")
    shown = subprocess.Popen(
        [sys.executable, "-m", "hvdtune", *words[1:], "--port", "0"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    )
    link = re.search(r"http://\S+", shown.stdout.readline())[0]
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    with opener.open(link) as answer:
        assert answer.status == 200
    shown.send_signal(signal.SIGINT)
    shown.communicate(timeout=30)
    assert shown.returncode == 0


def test_every_page_is_named():
    rows = re.findall(r"^\| ([A-Z][a-z ]+) \|", PAGE, re.MULTILINE)
    assert rows == [page.TITLE for page in PAGES.values()]
