"""A bag of words whose embedding has sparse gradients, once as they are and once made dense."""

import horovod.torch as hvd
import torch

hvd.init()
torch.set_num_threads(1)


def train(sparse_as_dense):
    torch.manual_seed(1)
    bag = torch.nn.EmbeddingBag(1000, 8, sparse=True, mode="sum")
    score = torch.nn.Linear(8, 1)
    model = torch.nn.Sequential(bag, score)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    optimizer = hvd.DistributedOptimizer(
        optimizer,
        named_parameters=model.named_parameters(),
        sparse_as_dense=sparse_as_dense,
    )
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    generator = torch.Generator().manual_seed(100 + hvd.rank())
    losses = []
    for _ in range(30):
        words = torch.randint(0, 1000, (16, 5), generator=generator)
        wanted = (words < 500).float().mean(1, keepdim=True)
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(words), wanted)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, [p.detach().clone() for p in model.parameters()]


losses, sparse = train(sparse_as_dense=False)
_, dense = train(sparse_as_dense=True)
for one, other in zip(sparse, dense, strict=True):
    assert torch.allclose(one, other, atol=1e-6)
everywhere = hvd.allgather(sparse[0].unsqueeze(0))
assert torch.equal(everywhere, everywhere[:1].expand_as(everywhere))
first, last = hvd.allreduce(torch.tensor([sum(losses[:5]), sum(losses[-5:])])).tolist()
assert last < first
if hvd.rank() == 0:
    print(f"ok: loss {first:.2f} -> {last:.2f}", flush=True)
