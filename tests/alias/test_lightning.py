"""PyTorch Lightning as PyPI has it, 1.9 and the current version: docs/pytorch-lightning.md."""

import shlex
from functools import cache

import numpy as np
import pytest
import torch

from hvdtune.launcher.hosts import free_port
from tests.kit import third_party
from tests.kit.pages import ROOT, Page

PAGE = Page("docs/pytorch-lightning.md")
MODULES = {"hvdtune": "hvdtune", "torchrun": "torch.distributed.run"}

pytestmark = pytest.mark.slow  # imports torch and Lightning in every rank


VERSIONS = {"lightning1": "horovod", "lightning2": "ddp"}


def train(version, line, folder):
    """The parameters to which one of the page's commands trains."""
    (folder / "train.py").write_text(PAGE.block(VERSIONS[version]))
    words = shlex.split(line)
    # Not the packages of the tests: Lightning 1.9 needs an older setuptools.
    variables = {"PYTHONPATH": str(ROOT)}
    if words[0].startswith("MASTER_PORT="):
        variables["MASTER_PORT"] = str(free_port("127.0.0.1"))
        del words[0]
    program, *rest = words
    third_party.run(version, "-m", MODULES[program], *rest, folder=folder, **variables)
    parameters = torch.load(folder / "model.pt")
    return {name: parameter.numpy() for name, parameter in parameters.items()}


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The parameters to which one rank trains, by the version."""
    return cache(
        lambda version: train(version, "hvdtune run -np 1 train.py", tmp_path_factory.mktemp("one"))
    )


@pytest.mark.parametrize(
    ("version", "line"),
    [
        pytest.param(version, line, marks=third_party.is_needed(version))
        for version, script in VERSIONS.items()
        for line in PAGE.block(f"{script} commands").splitlines()
    ],
)
def test_each_command_trains_to_the_weights_of_one_rank(tmp_path, alone, version, line):
    one = alone(version)
    assert third_party.furthest(train(version, line, tmp_path), one) < 1e-12
    untrained = {name: np.zeros_like(value) for name, value in one.items()}
    assert third_party.furthest(untrained, one) > 0.1
