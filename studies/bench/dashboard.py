"""How long the dashboard takes with large traces: a table in Markdown.

    python -m studies.bench.dashboard                 # 1 and 10 million events, about 5 minutes
    python -m studies.bench.dashboard --events 200000
    python -m studies.bench.dashboard --events --foreign 100 1000   # MB

A trace of 32 ranks is generated, opened by `hvdtune dashboard`, and looked at in a headless
Chromium; with `--foreign`, a Chrome trace of another program as large as told, opened a second
time. `paint`: from the request for the timeline page until its first tile is drawn, by a browser
that has shown the first page. `answer`: from a key (zoom or pan) until what it asks for is drawn.
`tile`: processor time of the server for one tile of 160 lanes and 1300 pixels in random windows.
`page`: resident memory of the largest renderer, which holds the page. `server`: the most that the
server has had resident, until it was opened and after all that. What else runs on the machine
lengthens all of these but the columns of processor time. What is under way is told on stderr.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil
from playwright.sync_api import Page, sync_playwright

from hvdtune.dashboard.swimlane import Swimlane
from hvdtune.dashboard.tiles import TileWindow
from hvdtune.timeline import merge
from hvdtune.timeline.model.schema import KINDS, RECORD
from hvdtune.timeline.reading.opening import open_light
from studies.bench import chrome_trace
from tests.kit import rank_files

RANKS, TENSORS, BUCKETS = 32, 24, 4
PER_STEP = 2 + 2 * TENSORS + 3 * BUCKETS + 1
BLOCK_RECORDS = 1 << 16
LANES, PIXELS, WINDOWS, KEYS = 160, 1300, 300, 80
WAIT_MS = 600_000  # on a crowded machine; what is waited for ends long before on an idle one
_ANSWERED = """async key => {
  const canvas = document.getElementById('swimlane'), before = canvas.dataset.tiles;
  const began = performance.now();
  canvas.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }));
  while (canvas.dataset.tiles === before) await new Promise(r => requestAnimationFrame(r));
  return performance.now() - began;
}"""


def write_trace(folder: Path, events: int) -> list[Path]:
    """Files of all ranks with about so many events."""
    steps = max(events // (RANKS * PER_STEP), 10)
    return [_write_rank(folder, rank, steps) for rank in range(RANKS)]


def _write_rank(folder: Path, rank: int, steps: int) -> Path:
    random = np.random.default_rng(rank)
    one = _step_of(rank)
    rows = np.tile(one, steps)
    number = np.repeat(np.arange(steps, dtype=np.int64), len(one))
    late_ns = np.repeat(random.integers(0, 2_000_000, steps), len(one))
    rows["begin_ns"] += (number * 40_000_000 + late_ns).astype("<u8")
    rows["seq"] += np.where(rows["name"] > 0, number * TENSORS, number).astype("<u4")
    rows["bucket"] += (number * BUCKETS).astype("<u4")
    names = {1 + index: f"model.layer{index}.weight" for index in range(TENSORS)}
    parts = [rank_files.header(), rank_files.metadata(rank, size=RANKS, host=f"node{rank // 8}")]
    parts.append(rank_files.names(dict(names)))
    for first in range(0, len(rows), BLOCK_RECORDS):
        payload = rows[first : first + BLOCK_RECORDS].tobytes()
        parts.append(rank_files.block(rank_files.RECORDS, payload))
    path = folder / f"rank-{rank}.hvt"
    return rank_files.write(path, *parts, rank_files.end())


def _step_of(rank: int) -> np.ndarray:
    """One step of 38 ms: computing, announcements, buckets that overlap it in part."""
    ms = 1_000_000
    rows: list[tuple[int, int, int, int, int, int]] = []

    def add(kind: str, begin: int, end: int, name: int = 0, bucket: int = 0, arg: int = 0) -> None:
        rows.append((begin, KINDS[kind].code << 48 | (end - begin), name, 0, bucket, arg))

    add("STEP", 0, 38 * ms, arg=20_000)
    add("BLOCKED", 30 * ms, 37 * ms)
    add("CYCLE", 12 * ms, 12 * ms)
    each = TENSORS // BUCKETS
    for bucket in range(BUCKETS):
        begin, end = (12 + 6 * bucket) * ms, (17 + 6 * bucket) * ms
        add("BUCKET", begin, end, bucket=bucket, arg=each << 20)
        add("PACK", begin, begin + ms, bucket=bucket, arg=each << 20)
        add("UNPACK", end - ms, end, bucket=bucket, arg=each << 20)
        for index in range(bucket * each, (bucket + 1) * each):
            ready = (4 + index) * ms + 10_000 * rank
            add("NEGOTIATE", ready, max(begin - 10_000, ready), index + 1, bucket, 1)
            add("ALLREDUCE", begin, end, index + 1, bucket, 1 << 20)
    table = np.array(rows, dtype=RECORD)
    table["seq"] = np.where(table["name"] > 0, table["name"] - 1, 0)
    return table[np.argsort(table["begin_ns"], kind="stable")]


def tile_ms(swimlane: Swimlane) -> np.ndarray:
    """Processor time of tiles in random windows of every width."""
    random = np.random.default_rng(1)
    lanes = Swimlane(swimlane.trace, swimlane.lanes[:LANES], swimlane.marks, swimlane.last_ns)
    taken = []
    for _ in range(WINDOWS):
        width = swimlane.last_ns / 10 ** random.uniform(0, 5)
        first = random.uniform(0, swimlane.last_ns - width)
        began = time.thread_time()
        lanes.tile(TileWindow.of(first, first + width, PIXELS))
        taken.append(1000 * (time.thread_time() - began))
    return np.array(taken[20:])  # without what is computed once


def look(page: Page, link: str) -> tuple[float, list[float]]:
    """Seconds until the timeline is drawn, ms of each answer."""
    page.goto(link)  # for the cookie and the key
    page.wait_for_selector("#content h1", timeout=WAIT_MS)
    began = time.monotonic()
    page.goto(f"{link.split('/?')[0]}/timeline", wait_until="commit")
    page.wait_for_selector("#swimlane[data-tiles]", timeout=WAIT_MS)
    painted_s = time.monotonic() - began
    keys = ("wwwwwwddddaassss" * (KEYS // 16))[:KEYS]
    return painted_s, [float(page.evaluate(_ANSWERED, key)) for key in keys]


def renderer_mb() -> float:
    """Return the resident memory of the largest renderer that this process has started."""
    sizes = [
        child.memory_info().rss
        for child in psutil.Process().children(recursive=True)
        if "--type=renderer" in " ".join(child.cmdline())
    ]
    return max(sizes, default=0) / 1e6


def server_mb(server: int) -> float:
    """Return the most memory that a process has had resident."""
    said = Path(f"/proc/{server}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", said)
    assert found is not None
    return int(found[1]) * 1024 / 1e6


def measure(events: int) -> str:
    """A row of the table, of hvdtune's own files."""
    with tempfile.TemporaryDirectory() as temporary:
        _tell(f"writes {events:,} events")
        trace = merge(write_trace(Path(temporary), events))
        count = len(trace.events)
        _tell("draws tiles")
        taken = tile_ms(Swimlane.of(trace))
        del trace
        return f"| {count / 1e6:.1f} M | {serve(Path(temporary), taken)}"


def measure_foreign(megabytes: float) -> str:
    """A row of the table, of a trace in Chrome's format."""
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / "trace.json"
        count = chrome_trace.write(path, int(megabytes * 1e6))
        taken = tile_ms(Swimlane.of(open_light(path)))
        return f"| {count / 1e6:.1f} M, {megabytes:.0f} MB | {serve(path, taken)}"


def _tell(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def serve(path: Path, taken: np.ndarray) -> str:
    """What a server of this trace costs: the rest of a row."""
    _tell("opens it")
    # The ranks' clocks were never measured, of which every rank would warn.
    command = [sys.executable, "-m", "hvdtune", "dashboard", str(path)]
    began = time.monotonic()
    with (
        sync_playwright() as playwright,
        subprocess.Popen(
            [*command, "--port", "0", "--no-browser"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as server,
    ):
        assert server.stdout is not None
        link = re.search(r"http://\S+", server.stdout.readline())
        assert link is not None
        opened_s = time.monotonic() - began
        opened_cpu_s = sum(psutil.Process(server.pid).cpu_times()[:2])
        opened_mb = server_mb(server.pid)
        _tell("looks at it")
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(viewport={"width": 1480, "height": 900})
        painted_s, answers = look(page, link[0])
        page_mb, most_mb = renderer_mb(), server_mb(server.pid)
        browser.close()
        server.terminate()
    middle, late = np.quantile(answers, (0.5, 0.95))
    return (
        f"{opened_s:.1f} | {opened_cpu_s:.1f} | {painted_s:.2f} | {middle:.0f} / {late:.0f} | "
        f"{np.quantile(taken, 0.5):.1f} / {np.quantile(taken, 0.95):.1f} | {page_mb:.0f} | "
        f"{opened_mb:.0f} / {most_mb:.0f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--events", type=int, nargs="*", default=[1_000_000, 10_000_000])
    parser.add_argument("--foreign", type=float, nargs="*", default=[], metavar="MB")
    arguments = parser.parse_args()
    print(
        "| events | opened s | opened CPU s | paint s | answer ms p50 / p95 "
        "| tile CPU ms p50 / p95 | page MB | server MB, opened / most |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for events in arguments.events:
        print(measure(events), flush=True)
    for megabytes in arguments.foreign:
        print(measure_foreign(megabytes), flush=True)


if __name__ == "__main__":
    main()
