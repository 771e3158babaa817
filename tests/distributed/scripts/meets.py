"""What a rank of any launcher does: `meets.py WAY`, once for each of two groups, one after another.

WAY is `env`, which says nothing more, `hash` for a process alone, or a URL of torch with
variables of the environment in braces.
"""

import json
import os
import sys

import torch
from torch import distributed as dist


def told(*names):
    return int(next(os.environ[name] for name in names if name in os.environ))


def place():
    return {
        "rank": told("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK"),
        "world_size": told("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"),
    }


def meet(way):
    if way == "env":
        dist.init_process_group("hvdtune")
    elif way == "hash":
        dist.init_process_group("hvdtune", store=dist.HashStore(), rank=0, world_size=1)
    else:
        dist.init_process_group("hvdtune", init_method=way.format(**os.environ), **place())


for _ in range(2):
    meet(sys.argv[1])
    rank, size = dist.get_rank(), dist.get_world_size()
    total, came = torch.tensor(rank + 1), torch.empty(1)
    dist.all_reduce(total)
    to_right = dist.P2POp(dist.isend, torch.full((1,), float(rank)), (rank + 1) % size)
    from_left = dist.P2POp(dist.irecv, came, (rank - 1) % size)
    for work in dist.batch_isend_irecv([to_right, from_left]) if size > 1 else ():
        work.wait()
    left = int(came) if size > 1 else rank
    print(f"said {json.dumps([rank, size, int(total), left])}", flush=True)
    dist.destroy_process_group()
