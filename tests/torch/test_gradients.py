import pytest
import torch

import hvdtune.torch as hvd
from hvdtune.errors import RankLostError, UsageError
from hvdtune.torch.compression import Compressor
from tests.parallel.ranks import run


def second_derivative():
    x = torch.tensor([1.0 + hvd.rank(), 2.0], dtype=torch.float64, requires_grad=True)
    total = hvd.allreduce(x**3, op=hvd.Sum, name="cubes")
    (first,) = torch.autograd.grad(total.sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    return first.tolist(), second.tolist()


def group_with_integers():
    floats = torch.ones(3, requires_grad=True)
    numbers, unused = torch.arange(3), torch.ones(2, requires_grad=True)
    results = hvd.grouped_allreduce([floats, numbers, unused], op=hvd.Sum)
    results[0].sum().backward()
    return floats.grad.tolist(), unused.grad.tolist(), results[1].requires_grad, results[1].tolist()


class Halves(Compressor):
    @staticmethod
    def compress(tensor):
        return tensor / 2, 2

    @staticmethod
    def decompress(tensor, ctx):
        return tensor * ctx


def compressed():
    rows = []
    for compression in (hvd.Compression.fp16, hvd.Compression.bf16, Halves):
        x = torch.full((2, 2), 1.0 + 2**-12, requires_grad=True)
        y = hvd.allreduce(x, op=hvd.Sum, compression=compression)
        (z,) = hvd.grouped_reducescatter([y], op=hvd.Sum, compression=compression)
        (z * (1.0 + 2**-12)).sum().backward()
        rows.append((y.dtype, y[0, 0].item(), z.shape, x.grad[0, 0].item()))
    return rows


def in_place():
    weight = torch.nn.Parameter(torch.full((2,), float(hvd.rank())))
    hvd.broadcast_(weight, root_rank=1)
    after_broadcast = weight.tolist()
    squared = (weight * weight).sum()
    hvd.allreduce_(weight, op=hvd.Sum)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        squared.backward()
    (weight * weight).sum().backward()
    with torch.inference_mode():
        frozen = hvd.allreduce_(torch.ones(1), op=hvd.Sum).item()
    return after_broadcast, weight.is_leaf, weight.tolist(), weight.grad.tolist(), frozen


def plain():
    x = torch.ones(2, requires_grad=True)
    with torch.no_grad():
        outside = hvd.allreduce(x)
    handle = hvd.allreduce_async(x)
    return [
        t.grad_fn is None for t in (outside, hvd.synchronize(handle), hvd.allreduce(x.detach()))
    ] + [hvd.allreduce(x).grad_fn is None]


def warned():
    with pytest.warns(DeprecationWarning, match="op=hvd.Sum") as caught:
        total = hvd.allreduce(torch.ones(1), average=False)
        hvd.allreduce_(torch.ones(1), average=True)
        hvd.synchronize(hvd.grouped_allreduce_async([torch.ones(1)], average=True))
    with pytest.raises(UsageError, match="not both"):
        hvd.allreduce(torch.ones(1), average=True, op=hvd.Sum)
    return total.item(), [warning.filename == __file__ for warning in caught]


def backward_twice():
    x = torch.ones(2, requires_grad=True)
    y = hvd.allreduce(x * x, op=hvd.Sum, name="kept")
    (y + y).sum().backward(retain_graph=True)
    first = x.grad.tolist()
    (y * 2).sum().backward()
    return first, x.grad.tolist()


def one_sided():
    x = torch.ones(2, requires_grad=hvd.rank() == 0)
    y = hvd.allreduce(x, name="loss")
    if hvd.rank() == 0:
        with pytest.raises(RankLostError, match=r"rank 1 has shut down.*allreduce\.loss\.gradient"):
            y.sum().backward()
    return y.requires_grad


HALF = (torch.float32, 2.0, (1, 2), 4.0)


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        pytest.param(
            second_derivative,
            [([6.0, 24.0], [12.0, 24.0]), ([24.0, 24.0], [24.0, 24.0])],
            id="a-derivative-has-a-derivative",
        ),
        pytest.param(
            group_with_integers,
            [([2.0] * 3, [0.0] * 2, False, [0, 2, 4])] * 2,
            id="a-group-holds-integers-and-results-that-nobody-uses",
        ),
        pytest.param(
            compressed,
            [[HALF, HALF, (torch.float32, 2.0 + 2**-11, (1, 2), 4.0 + 2**-10)]] * 2,
            id="compression-is-part-of-the-graph",
        ),
        pytest.param(
            in_place,
            [([1.0, 1.0], True, [2.0, 2.0], [4.0, 4.0], 2.0)] * 2,
            id="a-parameter-is-overwritten-but-not-between-use-and-backward",
        ),
        pytest.param(plain, [[True, True, True, False]] * 2, id="only-what-asks-gets-a-gradient"),
        pytest.param(warned, [(2.0, [True, True, True])] * 2, id="average-warns-at-the-caller"),
        pytest.param(
            backward_twice,
            [([8.0, 8.0], [16.0, 16.0])] * 2,
            id="backward-twice",
        ),
        pytest.param(one_sided, [True, False], id="a-backward-pass-that-others-do-not-run-says-so"),
    ],
)
def test_collectives_in_a_graph(body, wanted):
    assert run(body, 2) == wanted
