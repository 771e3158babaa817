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


def test_a_derivative_has_a_derivative():
    first, second = run(second_derivative, 2)
    assert first == ([6.0, 24.0], [12.0, 24.0])
    assert second == ([24.0, 24.0], [24.0, 24.0])


def group_with_integers():
    floats = torch.ones(3, requires_grad=True)
    numbers, unused = torch.arange(3), torch.ones(2, requires_grad=True)
    results = hvd.grouped_allreduce([floats, numbers, unused], op=hvd.Sum)
    results[0].sum().backward()
    return floats.grad.tolist(), unused.grad.tolist(), results[1].requires_grad, results[1].tolist()


def test_a_group_may_hold_integers_and_results_that_nobody_uses():
    assert run(group_with_integers, 2) == [([2.0] * 3, [0.0] * 2, False, [0, 2, 4])] * 2


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


def test_compression_is_part_of_the_graph():
    for half, brain, own in run(compressed, 2):
        assert half == brain == (torch.float32, 2.0, (1, 2), 4.0)
        assert own == (torch.float32, 2.0 + 2**-11, (1, 2), 4.0 + 2**-10)


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


def test_a_parameter_may_be_overwritten_but_not_between_its_use_and_the_backward_pass():
    assert run(in_place, 2) == [([1.0, 1.0], True, [2.0, 2.0], [4.0, 4.0], 2.0)] * 2


def plain():
    x = torch.ones(2, requires_grad=True)
    with torch.no_grad():
        outside = hvd.allreduce(x)
    handle = hvd.allreduce_async(x)
    return [
        t.grad_fn is None for t in (outside, hvd.synchronize(handle), hvd.allreduce(x.detach()))
    ] + [hvd.allreduce(x).grad_fn is None]


def test_only_what_asks_for_a_gradient_gets_one():
    assert run(plain, 2) == [[True, True, True, False]] * 2


def warned():
    with pytest.warns(DeprecationWarning, match="op=hvd.Sum") as caught:
        total = hvd.allreduce(torch.ones(1), average=False)
        hvd.allreduce_(torch.ones(1), average=True)
        hvd.synchronize(hvd.grouped_allreduce_async([torch.ones(1)], average=True))
    with pytest.raises(UsageError, match="not both"):
        hvd.allreduce(torch.ones(1), average=True, op=hvd.Sum)
    return total.item(), [warning.filename == __file__ for warning in caught]


def test_average_still_works_and_warns_where_it_is_written():
    assert run(warned, 2) == [(2.0, [True, True, True])] * 2


def backward_twice():
    x = torch.ones(2, requires_grad=True)
    y = hvd.allreduce(x * x, op=hvd.Sum, name="kept")
    (y + y).sum().backward(retain_graph=True)
    first = x.grad.tolist()
    (y * 2).sum().backward()
    return first, x.grad.tolist()


def test_a_graph_may_be_run_backward_more_than_once():
    assert run(backward_twice, 2) == [([8.0, 8.0], [16.0, 16.0])] * 2


def one_sided():
    x = torch.ones(2, requires_grad=hvd.rank() == 0)
    y = hvd.allreduce(x, name="loss")
    if hvd.rank() == 0:
        with pytest.raises(RankLostError, match=r"rank 1 has shut down.*allreduce\.loss\.gradient"):
            y.sum().backward()
    return y.requires_grad


def test_a_backward_pass_that_others_do_not_run_names_what_it_waits_for():
    assert run(one_sided, 2) == [True, False]
