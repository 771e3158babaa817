"""The commands and the script of docs/timeline.md work, in their order."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "timeline.md").read_text()
DATA = ROOT / "tests" / "timeline" / "data"


def block(name):
    return re.search(rf"<!-- docs-test: {name} -->\n```\w+\n(.*?)```", PAGE, re.DOTALL)[1]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("page")
    shutil.copytree(DATA / "kineto", path / "traces")
    shutil.copy(DATA / "horovod/horovod_resnet50_np2_sigkill.json.gz", path / "horovod.json.gz")
    return path


def run(folder, *words):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("command", block("commands").splitlines())
def test_a_command_of_the_page_works(command, folder):
    program, *words = shlex.split(command)
    assert program == "hvdtune"
    printed = run(folder, "-m", "hvdtune", *words)
    if "--json" in words:
        assert json.loads(printed)["slices"] == 5830
    elif "stats" in words:
        assert "Events in the files" in printed
    else:
        assert (folder / words[words.index("-o") + 1]).stat().st_size > 1000


def test_the_script_of_the_page_works(folder):
    assert run(folder, "-c", block("python")).startswith("{0: 16, 1: 16}")
    assert (folder / "traces.json.gz").exists()


def test_the_page_says_when_a_cache_is_kept_and_of_how_many_stretches():
    from hvdtune.timeline.model import coverage
    from hvdtune.timeline.reading import cache

    assert f"more than {cache.MIN_BYTES >> 20} MB" in PAGE
    assert f"{coverage.bins_for(1):,} stretches" in " ".join(PAGE.split())
