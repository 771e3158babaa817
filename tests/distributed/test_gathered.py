"""Reductions for which the ranks gather each other's contributions, by the backend hvdtune."""

import functools

import pytest
import torch
from torch import distributed as dist

from tests.distributed import members

SIZE = 3
BITWISE = {
    dist.ReduceOp.BAND: torch.bitwise_and,
    dist.ReduceOp.BOR: torch.bitwise_or,
    dist.ReduceOp.BXOR: torch.bitwise_xor,
}
BITS = (torch.uint8, torch.int16, torch.int64, torch.bool)


def of(rank, dtype, shape=(2, 3)):
    generator = torch.Generator().manual_seed(rank)
    drawn = torch.randint(0, 127, shape, generator=generator)
    return drawn > 60 if dtype is torch.bool else drawn.to(dtype)


def bitwise(rank, size):
    for op, fold in BITWISE.items():
        for dtype in BITS:
            expected = functools.reduce(fold, [of(r, dtype) for r in range(size)])
            everywhere, at_one = of(rank, dtype).t().contiguous().t(), of(rank, dtype)
            dist.all_reduce(everywhere, op)
            dist.reduce(at_one, 1, op)
            assert torch.equal(everywhere, expected), (op, dtype)
            assert torch.equal(at_one, expected if rank == 1 else of(rank, dtype))
        whole = functools.reduce(fold, [of(r, torch.int32, (2 * size,)) for r in range(size)])
        part = torch.empty(2, dtype=torch.int32)
        dist.reduce_scatter_single(part, of(rank, torch.int32, (2 * size,)), op)
        assert torch.equal(part, whole[2 * rank : 2 * rank + 2])
    with pytest.raises(ValueError, match=r"BAND of torch\.float32 is not supported"):
        dist.all_reduce(torch.ones(1), dist.ReduceOp.BAND)


def rows(rank, dtype, width):
    """A sparse matrix of 6 rows, of which rank r has r; one of them is there twice."""
    indices = torch.tensor([[n % 2 for n in range(rank)]], dtype=torch.int64)
    values = torch.arange(1, rank * width + 1, dtype=torch.float64).view(rank, width).to(dtype)
    return torch.sparse_coo_tensor(indices, values, (6, width))


def sparse(rank, size):
    for dtype in (torch.float32, torch.int64):
        tensor = rows(rank, dtype, 2)
        dist.all_reduce(tensor)
        dense = sum(rows(r, dtype, 2).to_dense() for r in range(size))
        assert torch.equal(tensor.to_dense(), dense)
    mean, scalars = rows(rank, torch.float32, 2), torch.eye(4)[: rank + 1].sum(0).to_sparse()
    dist.all_reduce(mean, dist.ReduceOp.AVG)
    dist.all_reduce(scalars)
    total = sum(rows(r, torch.float32, 2).to_dense() for r in range(size))
    assert torch.allclose(mean.to_dense(), total / size)
    assert scalars.to_dense().tolist() == [3, 2, 1, 0]
    with pytest.raises(ValueError, match="MAX of sparse tensors is not supported"):
        dist.all_reduce(rows(rank, torch.float32, 2), dist.ReduceOp.MAX)
    with pytest.raises(dist.DistBackendError, match="sparse tensors differ in shape"):
        dist.all_reduce(torch.eye(2 + rank).to_sparse())
    dist.barrier()


@pytest.mark.parametrize("body", [bitwise, sparse])
def test_every_rank_has_the_result(body, tmp_path):
    members.run(body, SIZE, tmp_path)
