"""What only PyTorch's binding has; see tests/contract for what all have."""

import pytest
import torch

import hvdtune.torch as hvd
from hvdtune.errors import MismatchError, UsageError
from tests.parallel.ranks import run

TWO_HOSTS = ["127.0.0.1", "127.0.0.1", "127.0.0.2", "127.0.0.2"]


def in_place():
    tensors = [torch.full((n + 1,), float(n)) for n in range(4)]
    results = [
        hvd.allreduce_(tensors[0], op=hvd.Sum),
        hvd.synchronize(hvd.allreduce_async_(tensors[1], op=hvd.Sum)),
        *hvd.grouped_allreduce_(tensors[2:3], op=hvd.Sum),
        *hvd.synchronize(hvd.grouped_allreduce_async_(tensors[3:], op=hvd.Sum)),
    ]
    flag = torch.tensor([hvd.rank()])
    results.append(hvd.broadcast_(flag, root_rank=1))
    same = [result is tensor for result, tensor in zip(results, [*tensors, flag], strict=True)]
    return [result[0].item() for result in results], same


def negated_view(value):
    """A tensor of one such value, in whose memory is the opposite."""
    view = torch.tensor([complex(1, -value)]).conj().imag
    assert view.is_neg()
    return view


def combine_negated_views():
    value = hvd.rank() + 1.0
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD([parameter], lr=1.0), named_parameters=[("weight", parameter)]
    )
    for _ in range(2):  # gradients of the first step travel in another way
        parameter.grad = negated_view(value)
        optimizer.step()
    parameters = [torch.view_as_complex(torch.ones(1, 2) * value).conj(), negated_view(value)]
    hvd.broadcast_parameters(parameters, root_rank=1)
    return [
        hvd.allreduce(negated_view(value), op=hvd.Sum).item(),
        hvd.grouped_allreduce([negated_view(value)], op=hvd.Max)[0].item(),
        hvd.broadcast(negated_view(value), root_rank=1).item(),
        hvd.allgather(negated_view(value)).tolist(),
        parameter.item(),
        *(tensor.item() for tensor in parameters),
    ]


def test_values_that_are_negated_when_they_are_read_keep_their_sign():
    expected = [3.0, 2.0, 2.0, [1.0, 2.0], -3.0, 2 - 2j, 2.0]
    assert run(combine_negated_views, 2) == [expected, expected]


def misuse():
    said = []
    for call in (
        lambda: hvd.allreduce(torch.ones(2, dtype=torch.complex64)),
        lambda: hvd.allreduce(torch.ones(2, 2).to_sparse()),
        lambda: hvd.allreduce_(torch.ones(4, 4).t()[1:]),
        lambda: hvd.broadcast_(torch.ones(4, 4).t()[1:], root_rank=0),
        lambda: hvd.allreduce_(negated_view(1.0)),
        lambda: hvd.alltoall(torch.ones(2), splits=torch.tensor([0.5, 1.5])),
        lambda: hvd.allreduce([1.0]),
    ):
        with pytest.raises(UsageError) as usage:
            call()
        said.append(str(usage.value))
    return said


def test_tensors_that_cannot_be_reduced_are_refused():
    parts = ["complex64", "sparse", "contiguous", "contiguous", "resolve_neg", "integers"]
    parts.append("torch.Tensor")
    for said in run(misuse, 2):
        for part, sentence in zip(parts, said, strict=True):
            assert part in sentence


def misuse_alone():
    """Rank 1 alone; what comes after that without a name either is the same on all ranks."""
    wrong = hvd.rank() == 1
    said, sums = [], []
    for call in (
        lambda: hvd.allreduce(torch.ones(2, device="meta" if wrong else "cpu")),
        lambda: hvd.allgather(torch.ones(()) if wrong else torch.ones(2)),
        lambda: hvd.alltoall(torch.ones(6), splits=[1, 1, 1] if wrong else [2, 2, 2]),
        lambda: hvd.broadcast(torch.ones(2), root_rank=7 if wrong else 0),
        lambda: hvd.reducescatter(torch.ones(()) if wrong else torch.ones(3)),
    ):
        with pytest.raises((UsageError, MismatchError)) as error:
            call()
        said.append((type(error.value), str(error.value)))
        sums.append([hvd.allreduce(torch.tensor([n]), op=hvd.Sum).item() for n in range(3)])
    return said, sums


def test_who_takes_no_part_in_an_operation_without_a_name_tells_the_others():
    for rank, (said, sums) in enumerate(run(misuse_alone, 3)):
        assert sums == [[0, 3, 6]] * 5
        for kind, sentence in said:
            assert kind is (UsageError if rank == 1 else MismatchError)
            if rank != 1:
                assert "rank 1 announced a call that raised an error there" in sentence


def place():
    return (
        *(hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size()),
        *(hvd.cross_rank(), hvd.cross_size(), hvd.is_homogeneous()),
        *(hvd.gloo_enabled(), hvd.mpi_enabled(), hvd.gloo_built(), hvd.nccl_built()),
    )


def test_ranks_know_their_place():
    job = (True, True, False, True, 0)
    assert run(place, 4, hosts=TWO_HOSTS) == [
        (0, 4, 0, 2, 0, 2, *job),
        (1, 4, 1, 2, 0, 2, *job),
        (2, 4, 0, 2, 1, 2, *job),
        (3, 4, 1, 2, 1, 2, *job),
    ]


def reduce_with_nan():
    nan = float("nan")
    rows = []
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        tensor = torch.tensor([nan, 1.0] if hvd.rank() == 0 else [1.0, nan], dtype=dtype).repeat(20)
        rows += [hvd.allreduce(tensor, op=op).isnan().all().item() for op in (hvd.Min, hvd.Max)]
    return rows


def before_init():
    hvd.shutdown()
    said = []
    for call in (hvd.rank, hvd.is_homogeneous, lambda: hvd.allreduce(torch.ones(1))):
        with pytest.raises(ValueError, match=r"use hvd\.init") as caught:
            call()
        said.append(str(caught.value))
    with pytest.raises(ValueError):
        hvd.mpi_threads_supported()
    return said, hvd.is_initialized(), hvd.gloo_enabled(), hvd.mpi_enabled()


NOT_INITIALIZED = "Horovod has not been initialized; use hvd.init()."


@pytest.mark.parametrize(
    ("body", "values"),
    [
        pytest.param(in_place, [([0.0, 2.0, 4.0, 6.0, 1], [True] * 5)] * 2, id="in-place"),
        pytest.param(reduce_with_nan, [[True] * 8] * 2, id="nan-is-minimum-and-maximum"),
        pytest.param(
            before_init,
            [([NOT_INITIALIZED] * 3, False, False, False)],
            id="no-init",
        ),
    ],
)
def test_every_rank_gets(body, values):
    assert run(body, len(values)) == values
