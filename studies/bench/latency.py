"""A lone small allreduce, from the call to the result: hvdtune, which negotiates, against gloo.

    python -m studies.bench.latency              # 2 ranks, 4 bytes
    python -m studies.bench.latency --ranks 4 --bytes 4096
    python -m studies.bench.latency --check      # exit code 1 if the bar is missed

Every rank calls `hvd.allreduce(tensor, op=hvd.Sum)` and torch.distributed's `all_reduce` in turns
of a few hundred, in the same processes; the order of the two rotates. A sample is the slowest
rank's mean over a turn. Shown are medians over the rounds with the middle half as spread. The bar:
at most half of gloo's time.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from hvdtune.core.config.environment import Config
from studies.bench.job import job

BAR: Final = 0.5
CALLS: Final = 200


def work(config: Config, store: str, count: int, rounds: int, pipe: Any) -> None:
    """A rank: sends its seconds per call as (hvdtune, gloo), a pair for each round."""
    import torch
    import torch.distributed as dist

    import hvdtune.torch as hvd
    from hvdtune.core.rank import runtime

    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=config.place.rank, world_size=config.place.size
    )
    runtime.init(config=config)
    tensor = torch.ones(count)
    expected = float(config.place.size)

    def turn(call: Callable[[], torch.Tensor]) -> float:
        for _ in range(20):
            call()
        begin = time.perf_counter()
        for _ in range(CALLS):
            result = call()
        seconds = (time.perf_counter() - begin) / CALLS
        if not bool((result == expected).all()):
            raise SystemExit(f"rank {config.place.rank} computed a wrong sum")
        return seconds

    def ours() -> torch.Tensor:
        return hvd.allreduce(tensor, op=hvd.Sum, name="tensor")

    def theirs() -> torch.Tensor:
        result = tensor.clone()
        dist.all_reduce(result)
        return result

    samples = []
    for number in range(rounds):
        if number % 2:
            samples.append((turn(ours), turn(theirs)))
        else:
            samples.append((turn(theirs), turn(ours))[::-1])
    pipe.send(samples)
    runtime.shutdown()
    dist.destroy_process_group()


def measure(ranks: int, count: int, rounds: int) -> list[tuple[float, float]]:
    """The slowest rank's seconds per call, (hvdtune, gloo) for each round."""
    with tempfile.TemporaryDirectory() as folder:
        given = (str(Path(folder, "store")), count, rounds)
        with job(work, [given] * ranks) as pipes:
            by_rank = [pipe.recv() for pipe in pipes]
    return [
        (max(ours for ours, _ in each), max(theirs for _, theirs in each))
        for each in zip(*by_rank, strict=True)
    ]


def microseconds(seconds: list[float]) -> str:
    """The median, and the middle half."""
    low, middle, high = (1e6 * cut for cut in statistics.quantiles(seconds, n=4))
    return f"{middle:7.1f} us [{low:.1f}, {high:.1f}]"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--bytes", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--check", action="store_true", help="exit code 1 if the bar is missed")
    given = parser.parse_args()
    samples = measure(given.ranks, max(given.bytes // 4, 1), given.rounds)
    ours, theirs = [list(column) for column in zip(*samples, strict=True)]
    ratio = statistics.median(a / b for a, b in samples)
    print(f"{given.ranks} ranks, {given.bytes} bytes, {given.rounds} rounds of {CALLS} calls")
    print(f"  hvdtune {microseconds(ours)}")
    print(f"  gloo    {microseconds(theirs)}")
    print(f"  hvdtune / gloo {ratio:.2f}x, bar {BAR:.2f}x")
    return int(given.check and ratio > BAR)


if __name__ == "__main__":
    sys.exit(main())
