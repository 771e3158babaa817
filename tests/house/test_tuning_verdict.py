"""Each command of docs/tuning-verdict.md works."""

import json

import pytest

from tests.kit import scripts
from tests.kit.pages import Page, words_of
from tests.kit.programs import call_cli, run_cli

PAGE = Page("docs/tuning-verdict.md")
_LOG = """\
hierarchical_allreduce,hierarchical_allgather,torus_allreduce,cache_enabled,cycle_time_ms,\
tensor_fusion_threshold,score
0,0,0, 1,5,4,439.25
0,0,0, 1,50,32,401.5
"""


def prepare(folder, words):
    """Write what the commands of the page read; `autotune.yaml` is what one of them makes."""
    (folder / "train.py").write_text(scripts.PACED.format(steps=10**6))
    (folder / "short.py").write_text(scripts.PACED.format(steps=5))
    (folder / "b.yaml").write_text("cycle_time_ms: 0.5\n")
    (folder / "autotune.csv").write_text(_LOG)
    if "autotune.yaml" in words:
        call_cli("profile", "import", "autotune.csv", folder=folder)


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(line, marks=[pytest.mark.slow] * line.startswith("hvdtune aa"))
        for line in PAGE.commands()
    ],
)
def test_a_command_of_the_page_works(command, tmp_path):
    words = words_of(command)
    prepare(tmp_path, words)
    codes = (0, 3, 4) if words[0] in ("verify", "aa") else (0,)
    done = run_cli(*words, folder=tmp_path, codes=codes)
    if "--json" in words:
        assert json.loads(done.stdout)["pairs"] == 6
