"""Images per second of a small residual network on random data."""

import argparse
import timeit

import horovod.torch as hvd
import torch
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--fp16-allreduce", action="store_true")
parser.add_argument("--batch-size", type=int, default=8)
parser.add_argument("--num-iters", type=int, default=3)
args = parser.parse_args()


class Block(torch.nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = torch.nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = torch.nn.BatchNorm2d(channels)

    def forward(self, x):
        return F.relu(x + self.norm(self.conv(x)))


hvd.init()
torch.manual_seed(hvd.rank())
torch.set_num_threads(1)
model = torch.nn.Sequential(
    torch.nn.Conv2d(3, 16, 3),
    *(Block(16) for _ in range(4)),
    torch.nn.AdaptiveAvgPool2d(1),
    torch.nn.Flatten(),
    torch.nn.Linear(16, 10),
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01 * hvd.size(), momentum=0.9)
compression = hvd.Compression.fp16 if args.fp16_allreduce else hvd.Compression.none
optimizer = hvd.DistributedOptimizer(
    optimizer, named_parameters=model.named_parameters(), compression=compression, op=hvd.Average
)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)
data = torch.randn(args.batch_size, 3, 32, 32)
target = torch.randint(0, 10, (args.batch_size,))


def benchmark_step():
    optimizer.zero_grad()
    F.cross_entropy(model(data), target).backward()
    optimizer.step()


seconds = timeit.timeit(benchmark_step, number=args.num_iters)
mean = hvd.allreduce(torch.tensor(args.batch_size * args.num_iters / seconds), name="img/s")
weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
everybody = hvd.allgather(weights[None])
assert all(torch.equal(row, weights) for row in everybody), "the ranks' models differ"
if hvd.rank() == 0:
    print(f"ok: {everybody.shape[0]} ranks, {mean.item() * hvd.size():.1f} images per second")
