"""The example and the page that shows what makes it distributed."""

import difflib
import re
import subprocess
import sys

import pytest

from tests.kit.pages import ROOT, Page

QUICKSTART = ROOT / "studies" / "quickstart"


def code_of(name: str) -> list[str]:
    text = (QUICKSTART / name).read_text()
    return re.sub(r'\A""".*?"""', "", text, flags=re.DOTALL).splitlines()


def the_difference() -> list[str]:
    lines = difflib.unified_diff(code_of("train_single.py"), code_of("train_torch.py"), n=0)
    changed = [line for line in lines if not line.startswith(("---", "+++", "@@"))]
    return [line for line in changed if line not in ("+", "-")]


def test_ten_lines_make_the_example_distributed() -> None:
    assert len([line for line in the_difference() if line.startswith("+")]) <= 10


def test_the_page_shows_the_difference_as_it_is() -> None:
    shown = Page("docs/pytorch.md").block("quickstart-diff")
    assert shown.splitlines() == the_difference()


@pytest.mark.slow
def test_the_example_in_one_process_learns() -> None:
    words = ["train_single.py", "--epochs", "4", "--lr", "0.02"]
    done = subprocess.run(
        [sys.executable, *words], cwd=QUICKSTART, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    share = re.search(r"test accuracy ([\d.]+)%", done.stdout)
    assert share is not None and float(share[1]) > 80
