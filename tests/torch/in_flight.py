"""Models whose gradients tests interrupt, drop or change while they are in flight."""

import gc
from contextlib import contextmanager

import torch

import hvdtune.torch as hvd

ELEMENTS = 1 << 19  # the memory of one goes back to the system when it is freed


class Model(torch.nn.Module):
    """Its gradients are all `factor`."""

    def __init__(self, elements=ELEMENTS, layers=2):
        super().__init__()
        self.layers = torch.nn.ParameterList([torch.zeros(elements) for _ in range(layers)])

    def forward(self, factor):
        return sum(layer.sum() for layer in self.layers) * factor


class SparseModel(torch.nn.Module):
    """Every row of its sparse gradient is `factor`."""

    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(ELEMENTS // 64, 64, sparse=True)
        torch.nn.init.zeros_(self.table.weight)

    def forward(self, factor):
        return self.table(torch.arange(ELEMENTS // 64)).sum() * factor


KINDS = {
    "alone": (Model, {}),
    "a group": (Model, {"groups": 1}),
    "compressed": (Model, {"compression": hvd.Compression.fp16}),
    "sparse": (SparseModel, {}),
    "made dense": (SparseModel, {"sparse_as_dense": True}),
}


def training(kind):
    """Return a model and its optimizer after one step.

    The optimizer has a frozen parameter besides, as the second of its groups.
    """
    make, options = KINDS[kind]
    model = make()
    spare = torch.nn.Parameter(torch.zeros(1), requires_grad=False)
    groups = [{"params": [*model.parameters()]}, {"params": [spare]}]
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(groups, lr=1.0), model.named_parameters(), **options
    )
    model(1.0).backward()
    optimizer.step()
    optimizer.zero_grad()
    return model, optimizer


@contextmanager
def partial_pass(optimizer):
    """A backward pass in this block lacks a gradient, so it does not wait for the other ranks."""
    (spare,) = optimizer.param_groups[1]["params"]
    spare.requires_grad_(True)
    yield
    spare.requires_grad_(False)


def averages(model, optimizer, factor):
    """Returns the values that occur in the gradients of the next step."""
    model(factor).backward()
    optimizer.synchronize()
    found = set()
    for parameter in model.parameters():
        found.update(parameter.grad.to_dense().unique().tolist())
    return found


def sevens():
    """Returns tensors that lie where memory has been freed."""
    gc.collect()
    return [torch.full((ELEMENTS,), 7.0) for _ in range(8)]


def meet_twice():
    """After the first time everything before has ended, and the second lets go of it."""
    hvd.barrier()
    hvd.barrier()
