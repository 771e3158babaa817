"""DistributedDataParallel over the backend hvdtune."""

import hashlib

import torch
from torch import distributed as dist
from torch.nn.parallel import DistributedDataParallel

from tests.distributed import members


def trained(bucket_cap_mb):
    """The gradients' digest after three steps on data that differs by rank, and the parameters."""
    torch.manual_seed(0)
    layers = [torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers), bucket_cap_mb=bucket_cap_mb)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    digest = hashlib.sha256()
    torch.manual_seed(dist.get_rank() + 1)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(5, 16)).square().mean().backward()
        for parameter in model.parameters():
            digest.update(parameter.grad.numpy().tobytes())
        optimizer.step()
    return digest.hexdigest(), [parameter.detach() for parameter in model.parameters()]


def body(rank, size):
    small, _ = trained(0.001)
    large, parameters = trained(25)
    everybody = [torch.empty(0)] * size
    dist.all_gather_object(everybody, parameters)
    for others in everybody:
        assert all(torch.equal(a, b) for a, b in zip(others, parameters, strict=True))
    return small, large


def test_ranks_agree_and_gradients_have_the_same_bits_whatever_the_buckets(tmp_path):
    digests = members.run(body, 3, tmp_path)
    assert len({digest for pair in digests for digest in pair}) == 1
