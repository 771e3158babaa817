"""PyTorch-Ignite's backend for Horovod as PyPI has it: docs/pytorch-ignite.md."""

import shlex

import numpy as np
import pytest
import torch

from tests.kit import third_party
from tests.kit.pages import Page

PAGE = Page("docs/pytorch-ignite.md")

pytestmark = [
    pytest.mark.slow,  # imports torch and ignite in ten processes
    third_party.is_needed("ignite"),
]


def train(folder, *words):
    """The trained parameters."""
    (folder / "train.py").write_text(PAGE.block("script"))
    third_party.run("ignite", *words, folder=folder)
    parameters = torch.load(folder / "model.pt")
    return {name: parameter.numpy() for name, parameter in parameters.items()}


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    return train(tmp_path_factory.mktemp("alone"), "train.py")


@pytest.mark.parametrize("line", PAGE.commands())
def test_each_command_trains_to_the_weights_of_one_process(tmp_path, alone, line):
    program, *words = shlex.split(line)
    launcher = [] if program == "python" else ["-m", program]
    assert third_party.furthest(train(tmp_path, *launcher, *words), alone) < 1e-12
    untrained = {name: np.zeros_like(value) for name, value in alone.items()}
    assert third_party.furthest(untrained, alone) > 0.1


_GROUPS = """
import hvdtune.alias
import ignite.distributed as idist
import torch

def body(local_rank):
    rank = idist.get_rank()
    first = idist.new_group([0, 1])
    others = idist.all_gather(torch.tensor([rank]), group=first).tolist()
    assert others == ([0, 1] if rank < 2 else [rank])
    inner = idist.all_gather(torch.tensor([rank]), group=[1, 2]).tolist()
    assert inner == ([1, 2] if rank in (1, 2) else [rank])
    assert idist.all_reduce(rank, "SUM") == 6 and idist.all_reduce(rank, "MAX") == 3
    assert idist.all_reduce(torch.tensor(rank + 1.0), "PRODUCT").item() == 24
    assert idist.all_gather(f"rank {rank}") == [f"rank {other}" for other in range(4)]
    text = "root's" if rank == 2 else None
    assert idist.broadcast(text, src=2, safe_mode=True) == "root's"
    with idist.one_rank_first():
        pass
    idist.barrier()
    assert (idist.backend(), idist.model_name()) == ("horovod", "horovod-dist")
    assert (idist.get_nproc_per_node(), idist.get_nnodes(), idist.get_node_rank()) == (4, 1, 0)

with idist.Parallel(backend="horovod") as parallel:
    parallel.run(body)
"""


def test_its_collectives_do_what_it_documents(tmp_path):
    (tmp_path / "groups.py").write_text(_GROUPS)
    third_party.run("ignite", "-m", "hvdtune", "run", "-np", 4, "groups.py", folder=tmp_path)
