"""How much an attached dashboard slows the job that it shows: a table in Markdown.

    python -m studies.bench.attached                 # about 20 minutes
    python -m studies.bench.attached --pairs 4 --busy 0.5

A job of two ranks runs throughout. A pair is two blocks of steps, with nobody attached in one and
`hvdtune dashboard --attach` in the other, its Live page open in a headless Chromium with `--page`;
which comes first alternates. As many pairs with nobody attached in either tell the A/A floor: by
how much the mean of so many pairs differs from zero by chance, at 95 %. `busy` is the share of a
step in which a rank uses its processor; in the rest it waits, as for a device.
"""

import argparse
import contextlib
import math
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from playwright.sync_api import sync_playwright

from hvdtune.tuner.stats.estimates import estimate, noise_floor, noise_of, to_percent

SETTLE_S = 4.0  # from attaching on, and after the block before
BLOCK_S = 8.0
STEP_MS = 10.0
_SCRIPT = """
import sys, time
import torch
import hvdtune.torch as hvd
path, step_s, busy = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
torch.set_num_threads(1)
hvd.init()
tensors = [torch.ones(16384) for _ in range(16)]
times = open(path, "ab", buffering=0) if hvd.rank() == 0 else None
while True:
    until = time.thread_time() + busy * step_s
    while time.thread_time() < until:
        pass
    time.sleep((1 - busy) * step_s)
    handles = [hvd.allreduce_async_(t, name=f"gradient.{i}") for i, t in enumerate(tensors)]
    for handle in handles:
        hvd.synchronize(handle)
    hvd.mark_step()
    if times is not None:
        times.write(time.monotonic_ns().to_bytes(8, "little"))
"""


@contextlib.contextmanager
def running(folder: Path, busy: float) -> Iterator[tuple[int, Path]]:
    """A job under way: its launcher's process id, and the file of its steps' ends."""
    script, times = folder / "train.py", folder / "times"
    script.write_text(_SCRIPT)
    command = [sys.executable, "-m", "hvdtune", "run", "-np", "2", str(script)]
    job = subprocess.Popen([*command, str(times), str(STEP_MS / 1e3), str(busy)])
    try:
        while not times.exists():
            if job.poll() is not None:
                raise SystemExit("the job has ended")
            time.sleep(0.1)
        yield job.pid, times
    finally:
        job.terminate()
        job.wait()


@contextlib.contextmanager
def watched(pid: int, *, page: bool) -> Iterator[None]:
    """A dashboard attached to the job."""
    command = [sys.executable, "-m", "hvdtune", "dashboard", "--attach", str(pid)]
    with subprocess.Popen(
        [*command, "--port", "0", "--no-browser"], stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        link = re.search(r"http://\S+", server.stdout.readline())
        assert link is not None
        try:
            with looking(link[0]) if page else contextlib.nullcontext():
                yield
        finally:
            server.terminate()


@contextlib.contextmanager
def looking(link: str) -> Iterator[None]:
    """A page that shows the job."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page()
        page.goto(link)
        page.goto(link.split("/?")[0] + "/live")
        page.wait_for_selector("#live-steps .scatterlayer .trace", timeout=120_000)
        try:
            yield
        finally:
            browser.close()


def step_s(times: Path) -> float:
    """Mean of the steps that end in a block from now on."""
    time.sleep(SETTLE_S)
    before = times.stat().st_size // 8
    time.sleep(BLOCK_S)
    ends_ns = np.fromfile(times, "<i8")[before:]
    if len(ends_ns) < 10:
        raise SystemExit(f"only {len(ends_ns)} steps ended within {BLOCK_S:g} s")
    return float(ends_ns[-1] - ends_ns[0]) / 1e9 / (len(ends_ns) - 1)


def log_ratio(job: tuple[int, Path], *, swap: bool, attach: bool, page: bool) -> float:
    """ln(step time attached / step time alone) of one pair."""
    pid, times = job
    found = {}
    for letter in "BA" if swap else "AB":
        with watched(pid, page=page) if attach and letter == "B" else contextlib.nullcontext():
            found[letter] = step_s(times)
    return math.log(found["B"] / found["A"])


def measure(busy: float, pairs: int, *, page: bool) -> str:
    """A row of the table."""
    values: dict[bool, list[float]] = {False: [], True: []}
    with tempfile.TemporaryDirectory() as temporary, running(Path(temporary), busy) as job:
        step_ms = 1e3 * step_s(job[1])
        for number in range(pairs):
            for attach in (False, True):
                swap = bool(number % 2)
                values[attach].append(log_ratio(job, swap=swap, attach=attach, page=page))
    alone, attached = (estimate(values[key]) for key in (False, True))
    floor = to_percent(noise_floor(noise_of(values[False]), pairs))
    low, high = to_percent(attached.low), to_percent(attached.high)
    return (
        f"| {busy:g} | {step_ms:.2f} | {pairs} | {alone.gain_percent:+.2f} | {floor:.2f} | "
        f"{attached.gain_percent:+.2f} [{low:+.2f}, {high:+.2f}] |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--busy", type=float, nargs="*", default=[0.5, 1.0])
    parser.add_argument("--page", action="store_true", help="with the Live page open in a browser")
    arguments = parser.parse_args()
    print("| busy | step ms | pairs | A/A % | A/A floor % | attached % [95 %] |")
    print("|---|---|---|---|---|---|")
    for busy in arguments.busy:
        print(measure(busy, arguments.pairs, page=arguments.page), flush=True)


if __name__ == "__main__":
    main()
