"""Trains by DistributedDataParallel, and says how many buckets that has and a knob of hvdtune."""

import torch
from torch import distributed as dist
from torch import nn

from hvdtune.core.rank import runtime

dist.init_process_group("hvdtune")
torch.set_num_threads(1)
layers = nn.Sequential(*(nn.Linear(200, 200) for _ in range(6)))
model = nn.parallel.DistributedDataParallel(layers)
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
for step in range(6):
    optimizer.zero_grad()
    model(torch.ones(8, 200)).square().mean().backward()
    optimizer.step()
    if step == 5:
        sizes = model._get_ddp_logging_data()["rebuilt_bucket_sizes"].split(",")
        print(f"said {len(sizes)} buckets, {runtime.setting()['cycle_time_ms']} ms", flush=True)
dist.destroy_process_group()
