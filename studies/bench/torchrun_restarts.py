"""How soon a group of torch.distributed is gone when torchrun starts its job anew.

    python -m studies.bench.torchrun_restarts                   # 20 restarts, 4 ranks, 2 minutes
    python -m studies.bench.torchrun_restarts --backend gloo

Ranks train by DistributedDataParallel. In every attempt but the last, one in turn is killed
in a step drawn at random. The others hear of it by the error of a collective and leave the group;
the SIGTERM of torchrun, which would end them anyway, they ignore until then. Shown are, over the
restarts, the seconds from the kill until the last of them has

    the error      from its operation
    left           returned from destroy_process_group
    the new group  all ranks of the next attempt have formed theirs; with torchrun's own time and
                   the import of torch in every rank
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Final

BOUND_S: Final = 2.0
STEPS: Final = 40


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--backend", default="hvdtune")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--restarts", type=int, default=20)
    given = parser.parse_args()
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += [f"--nproc-per-node={given.ranks}", f"--max-restarts={given.restarts}"]
    command += [__file__, given.backend, str(given.restarts)]
    before = {path.name for path in Path("/dev/shm").iterdir()}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    moments: dict[tuple[str, int], list[float]] = defaultdict(list)
    for line in done.stdout.splitlines():
        if line.startswith("moment "):
            what, attempt, seconds = json.loads(line.removeprefix("moment "))
            moments[what, attempt].append(seconds)
    attempts = range(given.restarts)
    for what, shift in (("the error", 0), ("left", 0), ("the new group", 1)):
        found = [max(moments[what, n + shift]) - moments["killed", n][0] for n in attempts]
        told = [len(moments[what, n + shift]) for n in attempts]
        assert min(told) == given.ranks - 1 + shift, told
        middle, slowest = statistics.median(found), max(found)
        print(f"{what:14} median {middle:.3f} s, slowest {slowest:.3f} s of {len(found)}")
    left = sorted({path.name for path in Path("/dev/shm").iterdir()} - before)
    print(f"left in /dev/shm: {', '.join(left) or 'nothing'}")
    return int(max(max(moments["left", n]) - moments["killed", n][0] for n in attempts) > BOUND_S)


def work(backend: str, restarts: int) -> None:
    """A rank of one attempt."""
    import torch
    from torch import distributed

    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    distributed.init_process_group(backend)
    _tell("the new group", attempt)
    rank, size = distributed.get_rank(), distributed.get_world_size()
    torch.set_num_threads(1)
    layers = torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(4)))
    model = torch.nn.parallel.DistributedDataParallel(layers, bucket_cap_mb=0.5)
    fatal = random.Random(attempt).randrange(STEPS) if attempt < restarts else -1
    try:
        for step in range(STEPS):
            if step == fatal and rank == attempt % size:
                _tell("killed", attempt)
                os.kill(os.getpid(), signal.SIGKILL)
            model(torch.ones(8, 256)).sum().backward()
    except RuntimeError:
        _tell("the error", attempt)
        distributed.destroy_process_group()
        _tell("left", attempt)
        sys.exit(1)
    distributed.destroy_process_group()


def _tell(what: str, attempt: int) -> None:
    """All processes of the host have one clock, and one pipe: a line must be written at once."""
    os.write(1, f"moment {json.dumps([what, attempt, time.monotonic()])}\n".encode())


if __name__ == "__main__":
    if "TORCHELASTIC_RESTART_COUNT" in os.environ:
        work(sys.argv[1], int(sys.argv[2]))
    else:
        sys.exit(main())
