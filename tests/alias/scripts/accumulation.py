"""Two backward passes a step and clipped gradients: equal to one process with the joined batch."""

import horovod.torch as hvd
import torch

STEPS, PASSES, BATCH = 4, 2, 4


def fresh():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    return model.double()


def loss_of(model, x):
    return model(x).pow(2).mean()


hvd.init()
torch.set_num_threads(1)
data = torch.randn(
    STEPS, hvd.size(), PASSES, BATCH, 6, generator=torch.Generator().manual_seed(1)
).double()

model = fresh()
optimizer = hvd.DistributedOptimizer(
    torch.optim.SGD(model.parameters(), lr=0.1),
    named_parameters=model.named_parameters(),
    backward_passes_per_step=PASSES,
)
for batches in data[:, hvd.rank()]:
    optimizer.zero_grad()
    for batch in batches:
        (loss_of(model, batch) / PASSES).backward()
    optimizer.synchronize()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
    with optimizer.skip_synchronize():
        optimizer.step()

alone = fresh()
optimizer = torch.optim.SGD(alone.parameters(), lr=0.1)
for batches in data:
    optimizer.zero_grad()
    loss_of(alone, batches.reshape(-1, 6)).backward()
    torch.nn.utils.clip_grad_norm_(alone.parameters(), 0.05)
    optimizer.step()
for mine, wanted in zip(model.parameters(), alone.parameters(), strict=True):
    torch.testing.assert_close(mine, wanted, rtol=1e-12, atol=0)
if hvd.rank() == 0:
    print("ok: the same model")
