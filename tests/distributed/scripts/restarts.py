"""Trains with DistributedDataParallel; on the first attempt of torchrun's, rank 1 is killed."""

import os
import signal

import torch
from torch import distributed as dist

dist.init_process_group("hvdtune")
attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
for step in range(6):
    if step == 3 and attempt == 0 and dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    model(torch.ones(1, 4)).sum().backward()
print(f"said [{attempt}, {dist.get_rank()}]", flush=True)
dist.destroy_process_group()
