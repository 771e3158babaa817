"""The commands and the script of docs/timeline.md work, in their order."""

import json
import shutil
import subprocess
import sys

import pytest

from hvdtune.timeline.model import coverage
from hvdtune.timeline.reading import cache
from tests.kit.pages import Page, words_of
from tests.kit.programs import call_cli, environ
from tests.kit.traces import HOROVOD, KINETO

PAGE = Page("docs/timeline.md")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("page")
    shutil.copytree(KINETO, path / "traces")
    shutil.copy(HOROVOD / "horovod_resnet50_np2_sigkill.json.gz", path / "horovod.json.gz")
    return path


@pytest.mark.parametrize("command", PAGE.commands())
def test_a_command_of_the_page_works(command, folder):
    words = words_of(command)
    printed = call_cli(*words, folder=folder)
    if "--json" in words:
        assert json.loads(printed)["slices"] == 5830
    elif "stats" in words:
        assert "Events in the files" in printed
    else:
        assert (folder / words[words.index("-o") + 1]).stat().st_size > 1000


def test_the_script_of_the_page_works(folder):
    words = [sys.executable, "-c", PAGE.block("python")]
    printed = subprocess.check_output(words, cwd=folder, env=environ(), text=True)
    assert printed.startswith("{0: 16, 1: 16}")
    assert (folder / "traces.json.gz").exists()


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(f"more than {cache.MIN_BYTES >> 20} MB", id="when a cache is kept"),
        pytest.param(f"{coverage.bins_for(1):,} stretches", id="of how many stretches"),
    ],
)
def test_the_page_says_what_the_code_does(said):
    assert said in " ".join(PAGE.text.split())
