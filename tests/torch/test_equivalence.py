"""Several ranks train as one process does on all their data, and twice alike."""

import pytest
import torch

import hvdtune.torch as hvd
from tests.parallel.ranks import run

STEPS = 5
ROWS = 8  # of one step, on all ranks together


def make_model(exact):
    torch.manual_seed(7)
    layers = [torch.nn.Linear(6, 400), torch.nn.ReLU(), torch.nn.Linear(400, 400, bias=False)]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(400, 1)).double()
    if exact:
        for parameter in model.parameters():
            parameter.data = torch.randint(-1, 2, parameter.shape).double()
    return model


def data(exact, step):
    generator = torch.Generator().manual_seed(step)
    if exact:
        return torch.randint(-2, 3, (ROWS, 6), generator=generator).double()
    return torch.randn(ROWS, 6, generator=generator, dtype=torch.float64)


def train(exact, wrap=lambda optimizer, model: optimizer, part=slice(None)):
    """Where it is exact, all numbers are small multiples of a power of two."""
    model = make_model(exact)
    rate = 2.0**-12 if exact else 0.01
    optimizer = wrap(torch.optim.SGD(model.parameters(), lr=rate, momentum=0.5), model)
    for step in range(1 if exact else STEPS):
        optimizer.zero_grad()
        out = model(data(exact, step)[part])
        (out if exact else out.square()).mean().backward()
        optimizer.step()
    return [p.detach() for p in model.parameters()]


def train_together(exact, options):
    rows = ROWS // hvd.size()
    part = slice(hvd.rank() * rows, (hvd.rank() + 1) * rows)

    def wrap(optimizer, model):
        return hvd.DistributedOptimizer(optimizer, model.named_parameters(), **options)

    return train(exact, wrap, part)


@pytest.mark.parametrize("options", [{}, {"groups": 2}], ids=["", "groups"])
@pytest.mark.parametrize("size", [2, 4])
def test_the_same_numbers_where_the_mathematics_is_exact(size, options):
    alone = train(exact=True)
    assert not any(
        torch.equal(a, b) for a, b in zip(alone, make_model(True).parameters(), strict=True)
    )
    for values in run(train_together, size, True, options):
        assert all(torch.equal(a, b) for a, b in zip(values, alone, strict=True))


@pytest.mark.parametrize("size", [2, 4])
def test_the_same_to_twelve_digits_elsewhere_and_the_same_bits_in_every_run(size):
    alone = train(exact=False)
    first, second = run(train_together, size, False, {}), run(train_together, size, False, {})
    for values in (*first, *second):
        assert all(torch.equal(a, b) for a, b in zip(values, first[0], strict=True))
        for a, b in zip(values, alone, strict=True):
            assert (a - b).norm() <= 1e-12 * b.norm()
