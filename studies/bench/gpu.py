"""Allreduces of CUDA tensors: hvdtune by NCCL, in exact mode and through host memory, against NCCL.

    python -m studies.bench.gpu                      # 1 and 2 ranks
    python -m studies.bench.gpu --ranks 2 --sizes 1048576 --rounds 5
    python -m studies.bench.gpu --json figures.json

In each way, the same processes call `hvd.allreduce_` and `ncclAllReduce` on the same tensor in
turns: a turn is a number of calls, after each of which the host waits for the GPU ("alone"), or all
of which are waited for at its end ("queued"). "group" is `grouped_allreduce_` of 100 tensors
against the same tensors in one group of NCCL's. "step" is a whole training step of a model of 12
layers by `hvd.DistributedOptimizer`, against DistributedDataParallel, which has NCCL as well. Shown
is the time of hvdtune over that of the other, median and [fastest, slowest] round; a round's time
is the slowest rank's.

Ranks that share a GPU are told to NCCL as hosts of their own: their data goes through sockets, and
their kernels take turns on the GPU, so their times say little about ranks with GPUs of their own.
"""

from __future__ import annotations

import argparse
import ctypes
import dataclasses
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from hvdtune.core.config.environment import Config
from hvdtune.core.config.groups import GpuConfig
from studies.bench.job import job

WAYS: Final = {
    "nccl": GpuConfig("nccl"),
    "exact": GpuConfig("nccl", "exact"),
    "host": GpuConfig("host"),
}
SIZES: Final = (4, 65536, 1 << 20, 16 << 20, 64 << 20)
GROUP_TENSORS: Final = 100
LAYERS: Final = 12
WIDTH: Final = 1024
# NCCL's own numbers.
_FLOAT32, _AVERAGE = 7, 4


class _Id(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * 128)]


class PlainNccl:
    """NCCL's functions without anything around them, on the library that torch has loaded."""

    def __init__(self, rank: int, size: int, share: Callable[[bytes | None], bytes]) -> None:
        """`share` gives all ranks what the first gives it."""
        self._nccl = ctypes.CDLL("libnccl.so.2")
        own = _Id()
        if rank == 0:
            self._check(self._nccl.ncclGetUniqueId(ctypes.byref(own)))
        ctypes.memmove(ctypes.byref(own), share(bytes(own) if rank == 0 else None), 128)
        self._comm = ctypes.c_void_p()
        self._check(self._nccl.ncclCommInitRank(ctypes.byref(self._comm), size, own, rank))

    def _check(self, result: int) -> None:
        if result != 0:
            self._nccl.ncclGetErrorString.restype = ctypes.c_char_p
            raise SystemExit(f"NCCL: {self._nccl.ncclGetErrorString(result).decode()}")

    def allreduce(self, tensors: list[Any], stream: int) -> None:
        """Averages each in place."""
        if len(tensors) > 1:
            self._check(self._nccl.ncclGroupStart())
        for tensor in tensors:
            place = ctypes.c_void_p(tensor.data_ptr())
            count, own = ctypes.c_size_t(tensor.numel()), ctypes.c_void_p(stream)
            self._check(
                self._nccl.ncclAllReduce(place, place, count, _FLOAT32, _AVERAGE, self._comm, own)
            )
        if len(tensors) > 1:
            self._check(self._nccl.ncclGroupEnd())

    def close(self) -> None:
        self._check(self._nccl.ncclCommDestroy(self._comm))


def share_gpu(rank: int, size: int) -> None:
    """Takes this rank's GPU, before NCCL is used."""
    import torch

    gpus = torch.cuda.device_count()
    if gpus < size:
        os.environ |= {"NCCL_HOSTID": f"rank-{rank}", "NCCL_SOCKET_IFNAME": "lo"}
        os.environ |= {"NCCL_IB_DISABLE": "1", "NCCL_NET": "Socket"}
    torch.cuda.set_device(rank % gpus)


def training(wrap: Callable[[Any], tuple[Any, Any]]) -> Callable[[], None]:
    """A step of a model that `wrap` makes a distributed one, with its optimizer."""
    import torch

    torch.manual_seed(0)
    layers = [torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)]
    model, optimizer = wrap(torch.nn.Sequential(*layers).cuda())
    inputs = torch.randn(64, WIDTH, device="cuda")

    def step() -> None:
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()

    return step


def by_hvdtune(model: Any) -> tuple[Any, Any]:
    import torch

    import hvdtune.torch as hvd

    plain = torch.optim.SGD(model.parameters(), lr=1e-3)
    return model, hvd.DistributedOptimizer(plain, named_parameters=model.named_parameters())


def by_ddp(model: Any) -> tuple[Any, Any]:
    import torch

    wrapped = torch.nn.parallel.DistributedDataParallel(model, device_ids=[model[0].weight.device])
    return wrapped, torch.optim.SGD(wrapped.parameters(), lr=1e-3)


def work(config: Config, way: str, sizes: list[int], rounds: int, store: str, pipe: Any) -> None:
    """A rank: sends (what, bytes, seconds of hvdtune, seconds of the other) for each round."""
    import torch
    import torch.distributed as dist

    import hvdtune.torch as hvd
    from hvdtune.core.rank import runtime

    share_gpu(config.place.rank, config.place.size)
    runtime.init(config=dataclasses.replace(config, gpu=WAYS[way]))
    plain = PlainNccl(
        config.place.rank, config.place.size, lambda own: hvd.broadcast_object(own, root_rank=0)
    )
    stream = int(torch.cuda.current_stream().cuda_stream)

    def turn(call: Callable[[], Any], calls: int, alone: bool) -> float:
        hvd.barrier()
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(calls):
            call()
            if alone:
                torch.cuda.synchronize()
        torch.cuda.synchronize()
        return (time.perf_counter() - begin) / calls

    def interleave(what: str, nbytes: int, ways: list[Callable[[], Any]], calls: int) -> None:
        for call in ways:
            turn(call, 2, alone=False)
        for number in range(rounds):
            seconds = [0.0, 0.0]
            for which in (0, 1) if number % 2 else (1, 0):
                seconds[which] = turn(ways[which], calls, alone=what == "alone")
            pipe.send((what, nbytes, *seconds))

    def compare(what: str, tensors: list[Any], ours: Callable[[], Any], calls: int) -> None:
        nbytes = sum(tensor.nbytes for tensor in tensors)
        ways = [ours, lambda: plain.allreduce(tensors, stream)]
        for call in ways:
            for tensor in tensors:
                tensor.fill_(float(config.place.rank))
            call()
            torch.cuda.synchronize()
            average = (config.place.size - 1) / 2
            if not all(bool((tensor == average).all()) for tensor in tensors):
                raise SystemExit(f"rank {config.place.rank} computed a wrong average")
        interleave(what, nbytes, ways, calls)

    for nbytes in sizes:
        tensor = torch.empty(nbytes // 4, device="cuda")
        calls = 4 if nbytes > 4 << 20 else 10
        ours = lambda one=tensor: hvd.allreduce_(one, name="tensor")  # noqa: E731
        compare("alone", [tensor], ours, calls)
        compare("queued", [tensor], ours, calls)
    group = [torch.empty(10_000, device="cuda") for _ in range(GROUP_TENSORS)]
    compare("group", group, lambda: hvd.grouped_allreduce_(group, name="group"), 1)
    plain.close()
    dist.init_process_group(
        "nccl", init_method=f"file://{store}", rank=config.place.rank, world_size=config.place.size
    )
    steps = [training(by_hvdtune), training(by_ddp)]
    interleave("step", 4 * LAYERS * WIDTH * (WIDTH + 1), list(steps), 5)
    pipe.send(None)
    hvd.barrier()
    torch.cuda.synchronize()
    dist.destroy_process_group()
    hvd.shutdown()


def measure(way: str, ranks: int, sizes: list[int], rounds: int) -> dict[Any, list[Any]]:
    """Returns for each (what, bytes) a pair of seconds for each round."""
    figures: dict[Any, list[Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        own = (way, sizes, rounds, str(Path(folder, "store")))
        with job(work, [own] * ranks) as pipes:
            while True:
                told = [pipe.recv() for pipe in pipes]
                if told[0] is None:
                    return figures
                what, nbytes, *_ = told[0]
                slowest = [max(own[at] for own in told) for at in (2, 3)]
                figures.setdefault((what, nbytes), []).append(slowest)


def sized(nbytes: int) -> str:
    for unit, name in ((1 << 20, "MB"), (1 << 10, "KB")):
        if nbytes >= unit:
            return f"{nbytes / unit:.3g} {name}"
    return f"{nbytes} B"


def rows_of(way: str, ranks: int, figures: dict[Any, list[Any]]) -> list[dict[str, Any]]:
    rows = []
    for (what, nbytes), pairs in figures.items():
        ratios = [ours / other for ours, other in pairs]
        rows.append(
            {
                "way": way,
                "ranks": ranks,
                "what": what,
                "bytes": nbytes,
                "ratio": statistics.median(ratios),
                "fastest": min(ratios),
                "slowest": max(ratios),
                "hvdtune_us": 1e6 * statistics.median(ours for ours, _ in pairs),
                "other_us": 1e6 * statistics.median(other for _, other in pairs),
            }
        )
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", type=Path, help="write the figures there, too")
    options = parser.parse_args()
    import torch

    if not torch.cuda.is_available():
        print("no CUDA device here", file=sys.stderr)
        return 1
    version = ".".join(map(str, torch.cuda.nccl.version()))
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, NCCL {version}")
    print(f"{'way':6} {'ranks':5} {'what':7} {'size':>8} {'hvdtune us':>11} {'other us':>9}  ratio")
    rows = []
    for ranks in options.ranks:
        for way in options.ways:
            for row in rows_of(way, ranks, measure(way, ranks, options.sizes, options.rounds)):
                rows.append(row)
                print(
                    f"{way:6} {ranks:<5} {row['what']:7} {sized(row['bytes']):>8} "
                    f"{row['hvdtune_us']:11.1f} {row['other_us']:9.1f}  {row['ratio']:.2f}x "
                    f"[{row['fastest']:.2f}, {row['slowest']:.2f}]",
                    flush=True,
                )
            if options.json:
                options.json.write_text(json.dumps(rows, indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
