"""The commands of docs/why.md do what the page says."""

import json
import re

import pytest

from hvdtune.timeline.analysis.findings.finding import KINDS
from tests.kit.pages import Page, words_of
from tests.kit.programs import call_cli, run_cli

PAGE = Page("docs/why.md")


# The page's script without torch
_SLOW_INPUT = """
import time
import numpy as np
from hvdtune.core.rank.collectives import Reduction, allreduce_async
from hvdtune.core.rank.handles import synchronize
from hvdtune.core.rank.numpy_adapter import ADAPTER
from hvdtune.core.rank.runtime import init, mark_step, rank
from hvdtune.core.rank.spans import span

init()
gradient = np.ones(100_000, np.float32)
for step in range(40):
    with span("input"):
        time.sleep(0.1 if rank() == 1 else 0.001)
    synchronize(allreduce_async(ADAPTER, [gradient], [gradient], "gradient", Reduction()))
    mark_step()
"""


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(PAGE.block("script"), id="of the page", marks=pytest.mark.slow),
        pytest.param(_SLOW_INPUT, id="without torch"),
    ],
)
def test_the_commands_of_the_page_find_the_slow_rank(script, tmp_path):
    (tmp_path / "train.py").write_text(script)
    recording, *others = PAGE.commands()
    run_cli(*words_of(recording), folder=tmp_path)
    said = {line: call_cli(*words_of(line), folder=tmp_path) for line in others}
    answer = json.loads(said["hvdtune timeline why --json trace.json"])
    found = {(row["kind"], tuple(row["ranks"])) for row in answer["findings"]}
    assert ("slow-input", (1,)) in found
    assert "rank 1 waits for input" in said["hvdtune timeline why trace.json"]
    assert "No difference" in said["hvdtune timeline diff trace.json trace.json"]
    assert (tmp_path / "trace.html").stat().st_size > 5000


def test_the_page_names_every_kind_of_finding():
    named = set(re.findall(r"^\| (`[a-z-]+`(?:, `[a-z-]+`)*) \|", PAGE.text, re.MULTILINE))
    kinds = {kind for cell in named for kind in re.findall(r"[a-z-]+", cell)}
    assert kinds == KINDS
