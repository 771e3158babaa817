"""Ranks with different numbers of batches: who has no more joins."""

import horovod.torch as hvd
import torch

hvd.init()
torch.set_num_threads(1)
model = torch.nn.Linear(4, 1)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
optimizer = hvd.DistributedOptimizer(
    torch.optim.SGD(model.parameters(), lr=0.01), named_parameters=model.named_parameters()
)
for _ in range(2 + 2 * hvd.rank()):
    optimizer.zero_grad()
    model(torch.randn(2, 4)).pow(2).mean().backward()
    optimizer.step()
last = hvd.join()
assert last == hvd.size() - 1, last

hvd.broadcast_parameters(model.state_dict(), root_rank=last)
weights = hvd.allgather(model.weight.detach())
assert torch.equal(weights, model.weight.detach().expand(hvd.size(), -1))
if hvd.rank() == 0:
    print(f"ok: rank {last} was last")
