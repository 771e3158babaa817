"""Tensors on a GPU, by NCCL and through pinned host memory."""

import pytest
import torch

import hvdtune.torch as hvd
from tests.gpu.on_gpu import NEEDS_GPU, run

pytestmark = NEEDS_GPU


def every_collective():
    mine = torch.arange(6.0, device="cuda").reshape(2, 3) + hvd.rank()
    product = mine @ mine.T  # still being computed when the operation is asked for
    total = hvd.allreduce(product, op=hvd.Sum)
    hvd.allreduce_(mine, op=hvd.Sum)
    rows = hvd.allgather(torch.full((1, 2), float(hvd.rank()), device="cuda"))
    root = hvd.broadcast(torch.tensor([float(hvd.rank())], device="cuda"), root_rank=1)
    part = hvd.reducescatter(torch.ones(2, 2, device="cuda"), op=hvd.Sum)
    sent, received = hvd.alltoall(torch.arange(2.0, device="cuda"), splits=[1, 1])
    results = [total, mine, rows, root, part, sent]
    assert all(result.is_cuda for result in results)
    return [result.cpu() for result in results], received.tolist()


@pytest.mark.parametrize("operations", ["host", "nccl"])
def test_every_collective_takes_and_returns_gpu_tensors(operations):
    first, second = run(every_collective, 2, gpu_operations=operations)
    for here, there in zip(first[0][:4], second[0][:4], strict=True):
        assert torch.equal(here, there)
    base = torch.arange(6.0).reshape(2, 3)
    assert torch.equal(first[0][0], base @ base.T + (base + 1) @ (base + 1).T)
    assert torch.equal(first[0][1], 2 * base + 1)
    assert first[0][2].tolist() == [[0.0, 0.0], [1.0, 1.0]]
    assert first[0][3].tolist() == [1.0]
    assert first[0][4].tolist() == [[2.0, 2.0]]
    assert (first[0][5].tolist(), first[1]) == ([0.0, 0.0], [1, 1])


def train(device, set_to_none):
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(8, 256), torch.nn.Tanh(), torch.nn.Linear(256, 256), torch.nn.Linear(256, 1)
    ).to(device, torch.float64)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.01), named_parameters=model.named_parameters()
    )
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    generator = torch.Generator().manual_seed(hvd.rank())
    for _ in range(5):
        inputs = torch.randn(16, 8, generator=generator, dtype=torch.float64).to(device)
        optimizer.zero_grad(set_to_none=set_to_none)
        model(inputs).pow(2).mean().backward()
        optimizer.step()
    return [p.detach().cpu() for p in model.parameters()]


@pytest.mark.parametrize("operations", ["host", "nccl"])
@pytest.mark.parametrize("set_to_none", [True, False])
def test_a_model_on_the_gpu_trains_as_one_in_host_memory(set_to_none, operations):
    on_gpu = run(train, 2, "cuda", set_to_none, gpu_operations=operations)
    on_host = run(train, 2, "cpu", set_to_none)
    for here, there, host in zip(*on_gpu, on_host[0], strict=True):
        assert torch.equal(here, there)
        assert torch.allclose(here, host, rtol=1e-9)
