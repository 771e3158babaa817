"""The example and the page that shows what makes it distributed."""

import difflib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hvdtune.core.config.knobs import load_knobs
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


def demo_commands(run: Path) -> list[str]:
    words = ["make", "-n", "-o", ".venv/.demo", "demo", f"RUN={run}"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.replace("\\\n", " ").splitlines()
    return [line for line in lines if line.startswith("hvdtune")]


def test_the_demo_searches_knobs_that_there_are(tmp_path: Path) -> None:
    study = next(line for line in demo_commands(tmp_path / "run") if "--trials" in line)
    words = study.split()
    names = words[words.index("--knobs") + 1].split(",")
    declared = re.findall(r'hvd\.knob\("(\w+)"', (QUICKSTART / "train_transformer.py").read_text())
    known = {knob.name for knob in load_knobs()} | {f"script.{name}" for name in declared}
    assert set(names) <= known
    assert any(name.startswith("script.") for name in names)


@pytest.mark.slow
def test_the_demo_trains_and_its_trace_is_explained(tmp_path: Path) -> None:
    trains, explains, *_ = demo_commands(tmp_path / "run")
    trained = subprocess.run(
        f"{trains} --fix script.threads=1", shell=True, cwd=ROOT, capture_output=True, text=True
    )
    assert trained.returncode == 0, trained.stderr
    assert "test accuracy" in trained.stdout
    explained = subprocess.run(explains, shell=True, cwd=ROOT, capture_output=True, text=True)
    assert explained.returncode == 0, explained.stderr
    assert re.match(r"\d+ steps of .* on 2 ranks", explained.stdout)
