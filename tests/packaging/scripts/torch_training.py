"""Trains a model with PyTorch; rank 0 says so if all ranks have the same weights."""

import torch

import hvdtune.torch as hvd

hvd.init()
torch.manual_seed(hvd.rank())
model = torch.nn.Linear(4, 1)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
optimizer = hvd.DistributedOptimizer(
    torch.optim.SGD(model.parameters(), lr=0.01), named_parameters=model.named_parameters()
)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
weights = hvd.allgather(model.weight.data)
assert weights.shape[0] == hvd.size() and (weights == weights[0]).all()
if hvd.rank() == 0:
    print(f"trained on {hvd.size()} ranks, by MPI: {hvd.mpi_enabled()}")
