"""Trains by DistributedDataParallel for a number of steps, and says what came out on this rank."""

import sys
import zlib

import torch
from torch import distributed as dist
from torch import nn

dist.init_process_group("hvdtune")
torch.manual_seed(1)
torch.set_num_threads(1)
layers = nn.Sequential(nn.Linear(200, 200), nn.Tanh(), nn.Linear(200, 200))
model = nn.parallel.DistributedDataParallel(layers, bucket_cap_mb=0.1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)
given = torch.randn(8, 200, generator=torch.Generator().manual_seed(dist.get_rank()))
for _ in range(int(sys.argv[1])):
    optimizer.zero_grad()
    model(given).square().mean().backward()
    optimizer.step()
flat = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
print(f"trained to {zlib.crc32(flat.numpy().tobytes())}", flush=True)
dist.destroy_process_group()
