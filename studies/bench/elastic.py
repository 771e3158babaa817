"""What resets of an elastic PyTorch job cost, and what faults leave of its speed.

    python -m studies.bench.elastic                               # 3 ranks, 60 s each
    python -m studies.bench.elastic -np 8 --seconds 1800 --without-faults 300 \
        --kill-every 58s --stop-every 116s --cut-every 116s       # a fault every 29 s

The same training runs, committing after every step, under `hvdtune chaos`, where a rank that is
given up returns after a second, and without faults, half of the time before and half after. With
`--cut-every` each rank is on a host of its own (a network namespace, which needs root), and a host
is cut off so often, at first after half of that time; it is back when a rank starts there. With
`--device-ms` a step leaves the processors free for so long, as one does that is computed on a GPU;
without, newcomers take what they need to start from the ranks' own processors.

Shown are the resets from the loss noticed (the first rank is back in `init`) to the first step
after it, the time that newcomers need from the end of their imports to their first step, and the
samples per second over those without faults.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hvdtune.cli.options import parse_duration
from hvdtune.plural import counted
from tests.parallel import netns

if TYPE_CHECKING:
    from typing_extensions import Self

_SAMPLES, _WIDTH, _BATCH = 100_000, 256, 32
_BEGAN: Final = "began"  # a file that is there from the first step on
_AFTER_NOTICE: Final = ("agreement", "mesh", "state", "first step")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-np", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=60.0, help="of training under faults")
    parser.add_argument(
        "--without-faults", type=float, metavar="SECONDS", help="in all; as long as with, if unset"
    )
    parser.add_argument("--kill-every", default="5s", metavar="TIME")
    parser.add_argument("--stop-every", metavar="TIME")
    parser.add_argument("--cut-every", type=parse_duration, metavar="TIME")
    parser.add_argument("--heartbeat-timeout", type=float, default=2.0, metavar="SECONDS")
    parser.add_argument(
        "--device-ms", type=float, default=0.0, help="each step waits so long for no processor"
    )
    parser.add_argument("--as-rank", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.as_rank:
        _train(options.seconds, options.device_ms / 1000)
        return
    faults = ["--kill-every", options.kill_every]
    faults += ["--stop-every", options.stop_every] if options.stop_every else []
    common = ["-np", str(options.np), "--min-np", "1"]
    common += ["--heartbeat-timeout", str(options.heartbeat_timeout)]
    device_ms = options.device_ms
    half_s = (options.without_faults or options.seconds) / 2
    with ExitStack() as stack:
        network = None
        if options.cut_every is not None:
            network = stack.enter_context(netns.network(options.np + 1))
            common += ["-H", ",".join(f"{_alias(n)}:1" for n in range(options.np))]
        before, _, _, _ = _run(["run", *common], half_s, device_ms, network)
        with_faults, newcomers_s, known, cuts = _run(
            ["chaos", *common, *faults], options.seconds, device_ms, network, options.cut_every
        )
        after, _, _, _ = _run(["run", *common], half_s, device_ms, network)
    resets_s = [
        sum(reset["phases_s"][phase] for phase in _AFTER_NOTICE) for reset in known["resets"]
    ]
    print(f"without faults {before:,.0f} samples/s before and {after:,.0f} after, with faults "
          f"{with_faults:,.0f} samples/s: {2 * with_faults / (before + after):.1%}")  # fmt: skip
    print(f"from the loss noticed to the first step: {_spread(resets_s)}")
    print(f"newcomers, from their imports to their first step: {_spread(newcomers_s)}")
    if cuts:
        print(f"a host was cut off {counted(cuts, 'time')}")
    for sentence in known["sentences"]:
        print(sentence)


def _alias(number: int) -> str:
    """What the launcher takes for the host of rank `number` at first."""
    return f"127.0.0.{number + 1}"


def _run(
    words: Sequence[str],
    seconds: float,
    device_ms: float,
    network: netns.Network | None,
    cut_every_s: float | None = None,
) -> tuple[float, list[float], dict[str, Any], int]:
    """Samples per second, what newcomers needed, what is known of the membership, and how often a
    host was cut off."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        script = [sys.executable, "-m", "studies.bench.elastic", "--as-rank"]
        script += ["--seconds", str(seconds), "--device-ms", str(device_ms)]
        command = [sys.executable, "-m", "hvdtune", *words, "-o", str(folder), *script]
        environ = dict(os.environ)
        cutter = None
        if network is not None:
            here, *there = network.hosts
            hosts = {_alias(n): asdict(host) for n, host in enumerate(there)}
            environ["STUDIES_ELASTIC_HOSTS"] = json.dumps(
                {"hosts": hosts, "router": asdict(network.router), "folder": str(folder)}
            )
            environ["HVDTUNE_ADDRESS"] = here.address
            if cut_every_s is not None:
                cutter = stack.enter_context(_Cutter(network, folder, cut_every_s))
            stack.enter_context(here.entered())
        done = subprocess.run(command, env=environ, check=False, capture_output=True, text=True)
        rate = re.search(r"([\d.]+) samples per second in all", done.stdout)
        if done.returncode or rate is None:
            raise SystemExit(done.stdout + done.stderr)
        document = json.loads((folder / "membership.json").read_text(encoding="utf-8"))
    newcomers_s = [float(found) for found in re.findall(r"newcomer: ([\d.]+) s", done.stdout)]
    known = document["otherData"]["hvdtune_elastic"]
    return float(rate[1]), newcomers_s, known, cutter.cuts if cutter else 0


class _Cutter:
    """Cuts hosts off while the block runs, from the training's first step on.

    Thread rule: `cuts` is the thread's own until the block has ended.
    """

    def __init__(self, network: netns.Network, folder: Path, every_s: float) -> None:
        self.cuts = 0
        self._network, self._folder, self._every_s = network, folder, every_s
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._cut)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _cut(self) -> None:
        while not (self._folder / _BEGAN).exists():
            if self._is_over.wait(0.1):
                return
        chance, due_s = random.Random(0), time.monotonic() + self._every_s / 2
        while not self._is_over.wait(due_s - time.monotonic()):
            # The launcher's own host is the first.
            host = chance.choice(self._network.hosts[1:])
            (self._folder / f"cut-{host.address}").touch()
            self._network.isolate(host)
            self.cuts += 1
            due_s += self._every_s


def _move_to_own_host() -> Path | None:
    """Moves this rank to its namespace, if it has one, and lets that rejoin the others; returns the
    folder of the measurement."""
    told = json.loads(os.environ.get("STUDIES_ELASTIC_HOSTS", "null"))
    if told is None:
        return None
    host = netns.Host(**told["hosts"][os.environ["HVDTUNE_HOST"]])
    folder = Path(told["folder"])
    if (folder / f"cut-{host.address}").exists():
        (folder / f"cut-{host.address}").unlink()
        netns.Network((), netns.Host(**told["router"])).rejoin(host)
    host.enter()
    os.environ["HVDTUNE_ADDRESS"] = host.address
    return folder


def _spread(values: Sequence[float]) -> str:
    """The median, the 95th percentile and the most."""
    if len(values) < 2:
        return f"{len(values)} only: {', '.join(f'{value:.2f} s' for value in values)}"
    high = statistics.quantiles(values, n=20, method="inclusive")[-1]
    return (
        f"median {statistics.median(values):.2f} s, p95 {high:.2f} s, most {max(values):.2f} s, "
        f"of {len(values)}"
    )


def _train(seconds: float, device_s: float) -> None:
    """The training, as a rank of the job."""
    folder = _move_to_own_host()

    import torch

    import hvdtune.torch as hvd

    imported_s = time.monotonic()
    torch.manual_seed(1)
    torch.set_num_threads(1)
    # Before init, which lets the others wait for this rank.
    data = torch.utils.data.TensorDataset(torch.randn(_SAMPLES, _WIDTH), torch.randn(_SAMPLES, 1))
    layers = [torch.nn.Linear(_WIDTH, _WIDTH), torch.nn.ReLU(), torch.nn.Linear(_WIDTH, 1)]
    model = torch.nn.Sequential(*layers)
    hvd.init()
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
                time.sleep(device_s)
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
                if folder is not None and hvd.rank() == 0:
                    (folder / _BEGAN).touch()
                if state.is_over:
                    return
            sampler.set_epoch(sampler.epoch + 1)

    hvd.elastic.run(train)(state)
    if hvd.rank() == 0:
        spent_s = time.monotonic() - state.began_s
        print(f"{state.done / spent_s:.1f} samples per second in all")


if __name__ == "__main__":
    main()
