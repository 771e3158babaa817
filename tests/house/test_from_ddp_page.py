"""The two scripts of docs/from-ddp.md train to the same weights, and go on from a checkpoint."""

import os
import shlex
import subprocess
import sys

import pytest

from tests.kit import programs
from tests.kit.pages import Page

PAGE = Page("docs/from-ddp.md")
COMMANDS = PAGE.commands()
SCRIPTS = {"train_ddp.py": "ddp", "train.py": "script"}


def trained(folder, command, starts):
    """The checkpoint that so many starts of a command leave."""
    import torch  # takes seconds, and the other test does without

    folder.mkdir()
    for name, block in SCRIPTS.items():
        (folder / name).write_text(PAGE.block(block))
    scripts = os.path.dirname(sys.executable)
    environ = programs.environ(OMP_NUM_THREADS="1", PATH=f"{scripts}:{os.environ['PATH']}")
    for _ in range(starts):
        done = subprocess.run(
            shlex.split(command), cwd=folder, env=environ, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
    return torch.load(folder / "checkpoint.pt")


@pytest.mark.slow  # imports torch in a dozen processes; torchrun needs one more
def test_each_command_ends_with_the_weights_of_ddp_also_after_another_start(tmp_path):
    ddp, *others = (
        trained(tmp_path / str(number), command, starts=2)
        for number, command in enumerate(COMMANDS)
    )
    for other in others:
        assert other["epoch"] == ddp["epoch"] == 3
        for name, weight in ddp["model"].items():
            assert (other["model"][name] - weight).abs().max() < 1e-6


def test_the_commands_run_both_scripts():
    named = {word for command in COMMANDS for word in shlex.split(command)}
    assert set(SCRIPTS) <= named
    assert [line for line in PAGE.block("script").splitlines() if "dist." in line] == []
