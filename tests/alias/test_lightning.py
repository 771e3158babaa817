"""PyTorch Lightning as PyPI has it, 1.9 and the current version: docs/pytorch-lightning.md."""

import shlex

import numpy as np
import pytest
import torch

from hvdtune.launcher.command import free_port
from tests.kit import third_party
from tests.kit.pages import ROOT, Page

PAGE = Page("docs/pytorch-lightning.md")
MODULES = {"hvdtune": "hvdtune", "torchrun": "torch.distributed.run"}

pytestmark = pytest.mark.slow  # imports torch and Lightning in every rank


def train(version, line, folder):
    """The parameters to which one of the page's commands trains."""
    words = shlex.split(line)
    # Not the packages of the tests: Lightning 1.9 needs an older setuptools.
    variables = {"PYTHONPATH": str(ROOT)}
    if words[0].startswith("MASTER_PORT="):
        variables["MASTER_PORT"] = str(free_port("127.0.0.1"))
        del words[0]
    program, *rest = words
    third_party.run(version, "-m", MODULES[program], *rest, folder=folder, **variables)
    parameters = torch.load(folder / "model.pt")
    (folder / "model.pt").unlink()
    return {name: parameter.numpy() for name, parameter in parameters.items()}


@pytest.mark.parametrize(
    ("version", "block"),
    [
        pytest.param("lightning1", "horovod", marks=third_party.is_needed("lightning1")),
        pytest.param("lightning2", "ddp", marks=third_party.is_needed("lightning2")),
    ],
)
def test_each_command_trains_to_the_weights_of_one_rank(tmp_path, version, block):
    (tmp_path / "train.py").write_text(PAGE.block(block))
    alone = train(version, "hvdtune run -np 1 train.py", tmp_path)
    for line in PAGE.block(f"{block} commands").splitlines():
        assert third_party.furthest(train(version, line, tmp_path), alone) < 1e-12
    untrained = {name: np.zeros_like(value) for name, value in alone.items()}
    assert third_party.furthest(untrained, alone) > 0.1
