"""Allreduce over two hosts against what the network between them can carry.

    python -m studies.bench.two_hosts            # 1 to 64 MB at 1 Gbit/s, about 90 seconds; as root
    python -m studies.bench.two_hosts --rate 5gbit --set chunk_bytes=1048576

Two network namespaces with two ranks each send to each other through a token bucket of the given
rate. Of an allreduce of S bytes each host must send S bytes and receive as many: its own sum of the
half that the other host finishes, and the half that it finishes itself. So the limit is the time in
which a plain stream in both directions at once carries S bytes; it is measured between the same
processes, in the same rounds, in an order that rotates. A sample is the slowest
rank's time per operation in one round; shown are medians over rounds, the middle half as spread,
and the median over the limit's (1.00x: the network is never idle).
"""

import argparse
import json
import os
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import hvdtune.torch as hvd
from hvdtune.core.rank import runtime
from tests.parallel import netns
from tests.parallel.ranks import run

MIB = 1 << 20
SIZES_MIB = [1, 4, 16, 64]
LIMIT = "link"


def _setting(algorithm: str, *, hierarchical: bool = False, torus: bool = False) -> dict[str, Any]:
    return {
        "allreduce_algorithm": algorithm,
        "hierarchical_allreduce": hierarchical,
        "torus_allreduce": torus,
    }


ALGORITHMS: dict[str, dict[str, Any]] = {
    "hierarchical": _setting("auto", hierarchical=True),
    "torus": _setting("auto", torus=True),
    "direct": _setting("direct"),
    "ring": _setting("ring"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES_MIB, help="in MiB")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", nargs="+", help="these algorithms, and the limit")
    parser.add_argument("--set", nargs="+", default=[], metavar="KNOB=VALUE")
    parser.add_argument("--json", type=Path, help="write all samples here")
    arguments = parser.parse_args()
    if reason := netns.why_not():
        raise SystemExit(reason)
    setting = {name: json.loads(value) for name, value in (row.split("=") for row in arguments.set)}
    with netns.network(2) as network, tempfile.TemporaryDirectory() as folder:
        network.limit(arguments.rate)
        first, second = network.hosts
        task = {
            "sizes": arguments.sizes,
            "rounds": arguments.rounds,
            "only": arguments.only or [*ALGORITHMS, "gloo"],
            "store": f"{folder}/gloo",
            "address": first.address,
        }
        places = [first, first, second, second]
        results = run(work, 4, task, timeout_s=900.0, places=places, setting=setting)[0]
    print(render(arguments.rate, results))
    if arguments.json:
        arguments.json.write_text(json.dumps(results))


class Stream:
    """A plain connection between the first ranks of both hosts."""

    def __init__(self, address: str, bytes: int) -> None:
        if hvd.rank() == 0:
            listener = socket.create_server((address, 0))
            hvd.broadcast(torch.tensor(listener.getsockname()[1]), 0, name="port")
            self._socket = listener.accept()[0]
            listener.close()
        else:
            port = int(hvd.broadcast(torch.tensor(0), 0, name="port").item())
            if hvd.rank() == 2:
                self._socket = socket.create_connection((address, port))
        # Written once, so that no page is touched for the first time while the clock runs.
        self._outgoing, self._incoming = bytearray(b"o" * bytes), bytearray(b"i" * bytes)

    def both_ways(self, bytes: int) -> None:
        """Sends and receives this many bytes; returns when both are done."""
        if hvd.rank() in (1, 3):
            return
        view = memoryview(self._incoming)
        outgoing = memoryview(self._outgoing)[:bytes]
        sender = threading.Thread(target=self._socket.sendall, args=(outgoing,))
        sender.start()
        left = bytes
        while left > 0:
            left -= self._socket.recv_into(view, left)
        sender.join()


def work(task: dict[str, Any]) -> dict[str, dict[int, list[float]]]:
    """Seconds per operation: {what: {bytes: [one per round]}}; runs as every rank."""
    sizes = [size * MIB for size in task["sizes"]]
    stream = Stream(task["address"], max(sizes))
    names = [LIMIT, *task["only"]]
    if "gloo" in names:
        os.environ["GLOO_SOCKET_IFNAME"] = "eth0"
        dist.init_process_group(
            "gloo", init_method=f"file://{task['store']}", rank=hvd.rank(), world_size=hvd.size()
        )
    results: dict[str, dict[int, list[float]]] = {name: {} for name in names}
    for size in sizes:
        tensor = torch.zeros(size // 4)
        repeats = max(1, 16 * MIB // size)
        reducers: dict[str, Callable[[], Any]] = {
            LIMIT: lambda size=size: stream.both_ways(size),
            "gloo": lambda tensor=tensor: dist.all_reduce(tensor),
        }
        for name in names:
            adopt(name)
            reducers.setdefault(
                name, lambda tensor=tensor: hvd.allreduce_(tensor, op=hvd.Sum, name="bench")
            )()
            results[name][size] = []
        for round_ in range(task["rounds"]):
            turn = round_ % len(names)
            for name in names[turn:] + names[:turn]:
                adopt(name)
                results[name][size].append(timed(reducers[name], repeats))
    if "gloo" in names:
        hvd.barrier()
        dist.destroy_process_group()
    return results


def adopt(name: str) -> None:
    """Returns when every rank uses the algorithm of that name."""
    wanted = ALGORITHMS.get(name)
    if wanted is None:
        return
    version = torch.tensor(runtime.propose(wanted) if hvd.rank() == 0 else 0)
    version = hvd.broadcast(version, 0, name="version")
    while runtime.native().version() < version:
        hvd.barrier()
    hvd.barrier()


def timed(reduce: Callable[[], Any], repeats: int) -> float:
    """The slowest rank's seconds per call."""
    hvd.barrier()
    begin = time.perf_counter()
    for _ in range(repeats):
        reduce()
    taken = torch.tensor((time.perf_counter() - begin) / repeats)
    return hvd.allreduce(taken, op=hvd.Max, name="slowest").item()


def render(rate: str, results: dict[str, dict[int, list[float]]]) -> str:
    lines = [f"allreduce float32, 2 hosts x 2 ranks at {rate}: median ms [middle half], over limit"]
    lines.append(f"{'MiB':>6}  {LIMIT + ' (limit)':>26}")
    lines[-1] += "".join(f"  {name:>34}" for name in results if name != LIMIT)
    for size, limit in results[LIMIT].items():
        line = f"{size // MIB:>6}  {cell(limit):>26}"
        for name in results:
            if name != LIMIT:
                ratio = statistics.median(results[name][size]) / statistics.median(limit)
                line += f"  {cell(results[name][size]):>26}  {ratio:5.2f}x"
        lines.append(line)
    megabits = [8e-6 * size / statistics.median(s) for size, s in results[LIMIT].items()]
    lines.append("the limit in Mbit/s: " + ", ".join(f"{value:.0f}" for value in megabits))
    return "\n".join(lines)


def cell(samples: list[float]) -> str:
    low, middle, high = (1e3 * q for q in statistics.quantiles(samples, n=4))
    return f"{middle:.4g} [{low:.4g}, {high:.4g}]"


if __name__ == "__main__":
    main()
