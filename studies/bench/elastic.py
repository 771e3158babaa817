"""What resets of an elastic PyTorch job cost, and what faults leave of its speed.

    python -m studies.bench.elastic                               # 3 ranks, 60 s each
    python -m studies.bench.elastic -np 8 --seconds 100 --kill-every 29s

The same training runs twice, committing after every step: without faults, and under `hvdtune
chaos`, where a killed rank returns after a second. Shown are the resets from the loss noticed (the
first rank is back in `init`) to the first step after it, the time that newcomers need from the end
of their imports to their first step, and the samples per second over those without faults.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

_SAMPLES, _WIDTH, _BATCH = 100_000, 256, 32
_AFTER_NOTICE: Final = ("agreement", "mesh", "state", "first step")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-np", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=60.0, help="of training, each time")
    parser.add_argument("--kill-every", default="5s", metavar="TIME")
    parser.add_argument("--stop-every", metavar="TIME")
    parser.add_argument("--as-rank", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.as_rank:
        _train(options.seconds)
        return
    faults = ["--kill-every", options.kill_every]
    faults += ["--stop-every", options.stop_every] if options.stop_every else []
    common = ["-np", str(options.np), "--min-np", "1"]
    rate, _, _ = _run(["run", *common], options.seconds)
    with_faults, newcomers_s, known = _run(["chaos", *common, *faults], options.seconds)
    resets_s = [
        sum(reset["phases_s"][phase] for phase in _AFTER_NOTICE) for reset in known["resets"]
    ]
    print(f"without faults {rate:,.0f} samples/s, with faults {with_faults:,.0f} samples/s: "
          f"{with_faults / rate:.1%}")  # fmt: skip
    print(f"from the loss noticed to the first step: {_spread(resets_s)}")
    print(f"newcomers, from their imports to their first step: {_spread(newcomers_s)}")
    for sentence in known["sentences"]:
        print(sentence)


def _run(words: Sequence[str], seconds: float) -> tuple[float, list[float], dict[str, Any]]:
    """Samples per second, what newcomers needed, and what is known of the membership."""
    with tempfile.TemporaryDirectory() as folder:
        script = [__file__, "--as-rank", "--seconds", str(seconds)]
        command = [sys.executable, "-m", "hvdtune", *words, "-o", folder, *script]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        document = json.loads((Path(folder) / "membership.json").read_text(encoding="utf-8"))
    rate = re.search(r"([\d.]+) samples per second in all", done.stdout)
    if rate is None:
        raise SystemExit(done.stdout + done.stderr)
    newcomers_s = [float(found) for found in re.findall(r"newcomer: ([\d.]+) s", done.stdout)]
    return float(rate[1]), newcomers_s, document["otherData"]["hvdtune_elastic"]


def _spread(values: Sequence[float]) -> str:
    """The median, the 95th percentile and the most."""
    if len(values) < 2:
        return f"{len(values)} only: {', '.join(f'{value:.2f} s' for value in values)}"
    high = statistics.quantiles(values, n=20, method="inclusive")[-1]
    return (
        f"median {statistics.median(values):.2f} s, p95 {high:.2f} s, most {max(values):.2f} s, "
        f"of {len(values)}"
    )


def _train(seconds: float) -> None:
    """The training, as a rank of the job."""
    import torch

    import hvdtune.torch as hvd

    imported_s = time.monotonic()
    hvd.init()
    torch.manual_seed(1)
    torch.set_num_threads(1)
    data = torch.utils.data.TensorDataset(torch.randn(_SAMPLES, _WIDTH), torch.randn(_SAMPLES, 1))
    layers = [torch.nn.Linear(_WIDTH, _WIDTH), torch.nn.ReLU(), torch.nn.Linear(_WIDTH, 1)]
    model = torch.nn.Sequential(*layers)
    optimizer: Any = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    sampler = hvd.elastic.ElasticSampler(data)
    state = hvd.elastic.TorchState(
        model, optimizer, sampler=sampler, done=0, began_s=0.0, is_over=False
    )

    def train(state: Any) -> None:
        nonlocal imported_s
        while not state.is_over:
            loader = torch.utils.data.DataLoader(data, batch_size=_BATCH, sampler=sampler)
            for number, (x, y) in enumerate(loader):
                optimizer.zero_grad()
                torch.nn.functional.mse_loss(model(x), y).backward()
                optimizer.step()
                before = sampler.processed_num
                sampler.record_batch(number, len(x))
                # Rank 0's clock counts, and all ranks are on one machine.
                now_s = hvd.broadcast_object(time.monotonic())
                state.began_s = state.began_s or now_s
                state.done += sampler.processed_num - before
                state.is_over = now_s - state.began_s >= seconds
                if imported_s and state.done > hvd.size() * _BATCH:
                    print(f"newcomer: {time.monotonic() - imported_s:.2f} s", flush=True)
                imported_s = 0.0
                state.commit()
                if state.is_over:
                    return
            sampler.set_epoch(sampler.epoch + 1)

    hvd.elastic.run(train)(state)
    if hvd.rank() == 0:
        spent_s = time.monotonic() - state.began_s
        print(f"{state.done / spent_s:.1f} samples per second in all")


if __name__ == "__main__":
    main()
