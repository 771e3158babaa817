"""One rank of one peer of collectives.py: reduces when told to, and sleeps in read() otherwise.

Runs in the peer's own environment, so it imports nothing but NumPy and the peer. Commands come
through one FIFO and go back through another, a JSON value per line.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

Reduce = Callable[[int], Any]  # of the first so many elements, in place
CHECKED = 4097  # elements whose sum is checked first


def zeros(elements: int) -> np.ndarray:
    """Aligned to a page, as frameworks align tensors to 64 bytes; NumPy's own begin 16 bytes in."""
    memory = np.zeros(4 * elements + 4096, np.uint8)
    begin = -memory.ctypes.data % 4096
    return memory[begin : begin + 4 * elements].view(np.float32)


def hvdtune_group(task: dict[str, Any], elements: int) -> tuple[np.ndarray, Reduce]:
    from hvdtune.core import _native

    group = _native.Group(
        {
            "rank": task["rank"],
            "size": task["size"],
            "store_address": task["store_address"],
            "store_port": task["store_port"],
            "key": bytes.fromhex(task["key"]),
            "host_costs": task["host_costs"],
        }
    )
    if task["peer"] == "hvdtune shared":
        data = np.frombuffer(group.allocate_shared(4 * elements), np.float32)
        data[:] = 0
    else:
        data = zeros(elements)
    address = data.ctypes.data
    return data, lambda count: group.allreduce(address, count, "float32")


def hvd(task: dict[str, Any], elements: int) -> tuple[np.ndarray, Reduce]:
    import torch

    import hvdtune.torch as hvd
    from hvdtune.core.config.environment import Config
    from hvdtune.core.config.groups import RankPlace, RendezvousConfig
    from hvdtune.core.rank import runtime

    config = Config(
        place=RankPlace(task["rank"], task["size"]),
        rendezvous=RendezvousConfig(
            task["store_address"], task["store_port"], bytes.fromhex(task["key"])
        ),
    )
    runtime.init(config=config)
    data = zeros(elements)
    tensor = torch.from_numpy(data)
    return data, lambda count: hvd.allreduce_(tensor[:count], op=hvd.Sum, name="bench")


def gloo(task: dict[str, Any], elements: int) -> tuple[np.ndarray, Reduce]:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{task['folder']}/gloo-store",
        rank=task["rank"],
        world_size=task["size"],
    )
    data = zeros(elements)
    tensor = torch.from_numpy(data)
    return data, lambda count: dist.all_reduce(tensor[:count])


def mpi(task: dict[str, Any], elements: int) -> tuple[np.ndarray, Reduce]:
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    task["rank"] = world.Get_rank()
    assert world.Get_size() == task["size"], "mpi4py and mpirun are of different MPIs"
    data = zeros(elements)
    kind = MPI.FLOAT
    return data, lambda count: world.Allreduce(MPI.IN_PLACE, [data, count, kind])


PEERS = {
    "hvdtune": hvdtune_group,
    "hvdtune shared": hvdtune_group,
    "hvd.allreduce": hvd,
    "gloo": gloo,
    "Open MPI": mpi,
    "MPICH": mpi,
}


def time_reductions(reduce: Reduce, count: int, repeats: int) -> float:
    # Half a turn unmeasured: ranks that woke up on one processor are moved apart meanwhile.
    for _ in range(repeats // 2 + 1):
        reduce(count)
    begin = time.perf_counter()
    for _ in range(repeats):
        reduce(count)
    return (time.perf_counter() - begin) / repeats


def time_passes(data: np.ndarray, count: int, repeats: int) -> float:
    """Reads and writes the elements once: what no reduction in place can do without."""
    part = data[:count]
    np.negative(part, out=part)
    begin = time.perf_counter()
    for _ in range(repeats):
        np.negative(part, out=part)
    return (time.perf_counter() - begin) / repeats


def main() -> None:
    task = json.loads(sys.argv[1])
    data, reduce = PEERS[task["peer"]](task, max(task["max_bytes"] // 4, CHECKED))
    data[:CHECKED] = task["rank"] + 1
    reduce(CHECKED)
    expected = task["size"] * (task["size"] + 1) / 2
    assert (data[:CHECKED] == expected).all() and not data[CHECKED:].any(), "a wrong sum"
    data[:CHECKED] = 0
    base = f"{task['folder']}/{task['peer']}-{task['rank']}".replace(" ", "_")
    with open(f"{base}.in") as commands, open(f"{base}.out", "w") as answers:
        for line in commands:
            command = json.loads(line)
            if command is None:
                break
            what, count, repeats = command
            if what == "reduce":
                seconds = time_reductions(reduce, count, repeats)
            else:
                seconds = time_passes(data, count, repeats)
            print(seconds, file=answers, flush=True)
    if PEERS[task["peer"]] is mpi:
        from mpi4py import MPI

        MPI.Finalize()
    else:
        os._exit(0)  # nobody waits for a peer that ends at its own pace


if __name__ == "__main__":
    main()
