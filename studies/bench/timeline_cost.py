"""What recording the timeline costs a real training run, as a ratio of step times.

    hvdtune run -np 2 studies/bench/timeline_cost.py

Trains the quickstart's network. Blocks of steps with recording on (A) and off (B) alternate as
A B B A and B A A B; each group gives one log ratio. Run it on a quiet machine.
"""

import argparse
import math
import sys
import tempfile
import time
from pathlib import Path

import torch
from paired import percent_with_interval

import hvdtune.torch as hvd
from hvdtune.core.rank import runtime

sys.path.insert(0, str(Path(__file__).parents[1] / "quickstart"))
from train_torch import load, make_model

SETTLE_STEPS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--groups", type=int, default=80)
    parser.add_argument("--block-steps", type=int, default=10)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    hvd.init()
    images, labels, *_ = load()
    model = make_model()
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.01), named_parameters=model.named_parameters()
    )

    def step() -> None:
        batch = torch.randint(len(labels), (32,))
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images[batch]), labels[batch]).backward()
        optimizer.step()

    def block(*, record: bool) -> float:
        native = runtime.native()
        if record:
            native.start_timeline(f"{folder}/{hvd.rank()}.hvt", 64 << 20)
        for _ in range(SETTLE_STEPS):
            step()
        begin = time.perf_counter()
        for _ in range(arguments.block_steps):
            step()
        taken = torch.tensor(time.perf_counter() - begin)
        if record:
            native.stop_timeline()
        return hvd.allreduce(taken, op=hvd.Max, name="block").item()

    with tempfile.TemporaryDirectory() as folder:
        block(record=True)
        ratios = []
        for group in range(arguments.groups):
            order = "ABBA" if group % 2 == 0 else "BAAB"
            times = [(letter, block(record=letter == "A")) for letter in order]
            on = math.fsum(math.log(t) for letter, t in times if letter == "A")
            off = math.fsum(math.log(t) for letter, t in times if letter == "B")
            ratios.append((on - off) / 2)
    if hvd.rank() == 0:
        report(ratios, arguments)
    hvd.shutdown()


def report(ratios: list[float], arguments: argparse.Namespace) -> None:
    print(
        f"recording the timeline costs {percent_with_interval(ratios)} of step time, "
        f"{len(ratios)} groups of 4 blocks of {arguments.block_steps} steps"
    )


if __name__ == "__main__":
    main()
