"""Allreduce of hvdtune, torch's gloo and Open MPI, interleaved in the same processes.

    python studies/bench/collectives.py            # all sizes at 2 and 4 ranks, about 10 minutes
    python studies/bench/collectives.py --quick    # a few sizes at 2 ranks

Every rank holds one float32 tensor and reduces it in place with each peer in turn, in an order
that rotates from round to round. A sample is the slowest rank's time per operation in one round;
shown are medians over rounds, the middle half as spread, and the peer's median over hvdtune's
("2.0x": hvdtune takes half the time). Open MPI takes part where mpirun and mpi4py are installed,
and then launches the ranks. Run it on a quiet machine.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hvdtune.core.config import worker_environ
from hvdtune.core.job import JobChannel

SIZES = [4, 256, 4096, 65_536, 262_144, 1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20]
QUICK_SIZES = [4, 65_536, 1 << 20, 16 << 20]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--ranks", type=int, nargs="+")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=Path, help="write all samples here")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        work(json.loads(arguments.worker))
        return
    sizes = QUICK_SIZES if arguments.quick else SIZES
    results = {}
    for ranks in arguments.ranks or ([2] if arguments.quick else [2, 4]):
        results[ranks] = measure(ranks, sizes, arguments.rounds)
        print(render(ranks, results[ranks]), flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(results))


def measure(ranks: int, sizes: list[int], rounds: int) -> dict[str, dict[int, list[float]]]:
    """Seconds per operation: {peer: {bytes: [one per round]}}."""
    mpirun = shutil.which("mpirun")
    key = os.urandom(32)
    channel = JobChannel(key, ranks)
    with tempfile.TemporaryDirectory() as folder:
        key_file = Path(folder, "key")
        key_file.touch(0o600)
        key_file.write_bytes(key)
        task = {
            "sizes": sizes,
            "rounds": rounds,
            "mpi": mpirun is not None,
            "store": f"{folder}/gloo",
            "results": f"{folder}/results.json",
            "key_file": str(key_file),
        }
        command = [sys.executable, __file__, "--worker", json.dumps(task)]
        shared = {
            "HVDTUNE_SIZE": str(ranks),
            "HVDTUNE_HOST": "localhost",
            "HVDTUNE_RENDEZVOUS": channel.address,
            "OMP_NUM_THREADS": "1",
        }
        try:
            run(command, ranks, shared, mpirun)
        finally:
            channel.close()
        return {
            peer: {int(size): samples for size, samples in by_size.items()}
            for peer, by_size in json.loads(Path(task["results"]).read_text()).items()
        }


def run(command: list[str], ranks: int, shared: dict[str, str], mpirun: str | None) -> None:
    if mpirun:
        options = ["-n", str(ranks), "--bind-to", "none", "--oversubscribe"]
        if os.geteuid() == 0:
            options.append("--allow-run-as-root")
        subprocess.run([mpirun, *options, *command], env=worker_environ(shared), check=True)
        return
    children = [
        subprocess.Popen(command, env=worker_environ({**shared, "HVDTUNE_RANK": str(rank)}))
        for rank in range(ranks)
    ]
    codes = [child.wait() for child in children]
    if any(codes):
        raise SystemExit("a rank failed; see above")


def peers(task: dict[str, Any]) -> tuple[int, dict[str, Callable[[Any], Any]]]:
    """This process's rank, and what reduces a tensor in place for each peer."""
    import torch.distributed as dist

    import hvdtune.torch as hvd
    from hvdtune.core.config import Config

    environ = worker_environ({"HVDTUNE_KEY_FILE": task["key_file"]})
    reducers: dict[str, Callable[[Any], Any]] = {}
    if task["mpi"]:
        from mpi4py import MPI

        environ["HVDTUNE_RANK"] = str(MPI.COMM_WORLD.Get_rank())
        reducers["Open MPI"] = lambda t: MPI.COMM_WORLD.Allreduce(MPI.IN_PLACE, t.numpy())
    config = Config.from_environ(environ)
    from hvdtune.core import runtime

    runtime.init(config=config)
    dist.init_process_group(
        "gloo", init_method=f"file://{task['store']}", rank=config.rank, world_size=config.size
    )
    reducers["gloo"] = dist.all_reduce
    reducers["hvdtune"] = lambda t: hvd.allreduce_(t, op=hvd.Sum, name="bench")
    return config.rank, reducers


def work(task: dict[str, Any]) -> None:
    import torch
    import torch.distributed as dist

    import hvdtune.torch as hvd

    torch.set_num_threads(1)
    rank, reducers = peers(task)
    names = sorted(reducers)
    results: dict[str, dict[int, list[float]]] = {name: {} for name in names}
    for size in task["sizes"]:
        tensor = torch.zeros(size // 4)
        repeats = max(1, min(200, (8 << 20) // size))
        for name in names:
            reducers[name](tensor)
            results[name][size] = []
        for round_ in range(task["rounds"]):
            turn = round_ % len(names)
            for name in names[turn:] + names[:turn]:
                hvd.barrier()
                begin = time.perf_counter()
                for _ in range(repeats):
                    reducers[name](tensor)
                taken = torch.tensor((time.perf_counter() - begin) / repeats)
                slowest = hvd.allreduce(taken, op=hvd.Max, name="slowest")
                results[name][size].append(slowest.item())
    if rank == 0:
        Path(task["results"]).write_text(json.dumps(results))
    hvd.barrier()
    dist.destroy_process_group()
    hvd.shutdown()


def render(ranks: int, results: dict[str, dict[int, list[float]]]) -> str:
    others = [name for name in results if name != "hvdtune"]
    lines = [f"\nallreduce float32, {ranks} ranks: median us [middle half], peer / hvdtune"]
    lines.append(f"{'bytes':>10}  {'hvdtune':>26}" + "".join(f"  {n:>34}" for n in others))
    for size, own in results["hvdtune"].items():
        line = f"{size:>10}  {cell(own):>26}"
        for name in others:
            ratio = statistics.median(results[name][size]) / statistics.median(own)
            line += f"  {cell(results[name][size]):>26}  {ratio:5.2f}x"
        lines.append(line)
    return "\n".join(lines)


def cell(samples: list[float]) -> str:
    low, middle, high = (1e6 * q for q in statistics.quantiles(samples, n=4))
    return f"{middle:.4g} [{low:.4g}, {high:.4g}]"


if __name__ == "__main__":
    main()
