"""The commands of docs/tuning-verdict.md work, in their order."""

import json

import pytest

from tests.kit import scripts
from tests.kit.pages import Page, words_of
from tests.kit.programs import run_cli

PAGE = Page("docs/tuning-verdict.md")
_LOG = """\
hierarchical_allreduce,hierarchical_allgather,torus_allreduce,cache_enabled,cycle_time_ms,\
tensor_fusion_threshold,score
0,0,0, 1,5,4,439.25
0,0,0, 1,50,32,401.5
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("page")
    (path / "train.py").write_text(scripts.PACED.format(steps=10**6))
    (path / "short.py").write_text(scripts.PACED.format(steps=5))
    (path / "b.yaml").write_text("cycle_time_ms: 0.5\n")
    (path / "autotune.csv").write_text(_LOG)
    return path


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(line, marks=[pytest.mark.slow] * line.startswith("hvdtune aa"))
        for line in PAGE.commands()
    ],
)
def test_a_command_of_the_page_works(command, folder):
    words = words_of(command)
    codes = (0, 3, 4) if words[0] in ("verify", "aa") else (0,)
    done = run_cli(*words, folder=folder, codes=codes)
    if "--json" in words:
        assert json.loads(done.stdout)["pairs"] == 6
