"""Gradients of several batches before each step; fp16 on the way; groups."""

import horovod.torch as hvd
import torch

hvd.init()
torch.set_num_threads(1)


def train(**options):
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(10, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    optimizer = hvd.DistributedOptimizer(
        optimizer, named_parameters=model.named_parameters(), backward_passes_per_step=3, **options
    )
    generator = torch.Generator().manual_seed(hvd.rank())
    losses = []
    for _ in range(15):
        optimizer.zero_grad()
        for _ in range(3):
            inputs = torch.randn(8, 10, generator=generator)
            loss = torch.nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True)) / 3
            loss.backward()
            losses.append(loss.item())
        optimizer.synchronize()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        with optimizer.skip_synchronize():
            optimizer.step()
    assert sum(losses[-9:]) < sum(losses[:9])
    return torch.cat([p.detach().flatten() for p in model.parameters()])


plain = train()
assert torch.equal(plain, train(num_groups=2))
assert torch.equal(plain, train(groups=1))
assert torch.allclose(plain, train(compression=hvd.Compression.fp16), atol=0.05)
everywhere = hvd.allgather(plain.unsqueeze(0))
assert torch.equal(everywhere, everywhere[:1].expand_as(everywhere))
if hvd.rank() == 0:
    print("ok: accumulated", flush=True)
