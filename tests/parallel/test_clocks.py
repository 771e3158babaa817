"""Clocks that differ by seconds and drift, in traces of real ranks, put on one."""

import time
from pathlib import Path

import numpy as np
import pandas as pd
import torch

import hvdtune.torch as hvd
from hvdtune.timeline import merge
from hvdtune.timeline.reading.formats.hvt import read_rank_file
from tests.kit import rank_files as files
from tests.parallel.ranks import run

RANKS = 8
CLOCK = 17
DURATION_BITS = 48


def work() -> None:
    end = time.monotonic() + 2.5
    go_on = torch.ones(1)
    step = 0
    while go_on.item() > 0:
        time.sleep(0.004 + 0.002 * (hvd.rank() == step % RANKS))
        go_on.fill_(float(time.monotonic() < end))
        hvd.allreduce_(go_on, op=hvd.Min, name="go_on")
        step += 1


def with_another_clock(path: Path, target: Path, offset_s: float, drift_ppm: float) -> None:
    """Writes the file as a host would have whose clock is this wrong."""
    file = read_rank_file(path)
    records = np.concatenate([file.carried, file.records]).copy()
    start = int(records["begin_ns"].min())
    true = records["begin_ns"].astype(np.int64)
    own = true + round(offset_s * 1e9) + ((true - start) * (drift_ppm * 1e-6)).astype(np.int64)
    records["begin_ns"] = own.astype(np.uint64)
    clock = records["duration_and_kind"] >> np.uint64(DURATION_BITS) == CLOCK
    bits = records["bucket"].astype(np.uint64) << np.uint64(32) | records["seq"]
    offset = bits.view(np.int64) + true - own
    again = offset.view(np.uint64)
    records["seq"][clock] = (again & np.uint64(0xFFFFFFFF))[clock]
    records["bucket"][clock] = (again >> np.uint64(32))[clock]
    files.write(
        target,
        files.header(),
        files.metadata(file.rank, size=RANKS, host=f"host-{file.rank}"),
        files.names({key: text for key, text in file.names.items() if key}),
        files.block(files.RECORDS, records.tobytes()),
        files.end(),
    )


def announcements(paths: list[Path]) -> tuple[pd.DataFrame, dict]:
    trace = merge(paths)
    events = trace.events[trace.events["kind"] == "NEGOTIATE"]
    events = events.assign(at_ns=events["begin_ns"] + trace.meta["origin_ns"])
    return events.set_index(["rank", "name", "seq"]), trace.meta["clock"]


def test_ranks_with_wrong_clocks_are_put_on_rank_0s(tmp_path):
    run(work, RANKS, timeline=str(tmp_path / "true-%r.hvt"))
    random = np.random.default_rng(8)
    for rank in range(RANKS):
        wrong = (random.uniform(-5, 5), random.uniform(-100, 100)) if rank else (0.0, 0.0)
        with_another_clock(tmp_path / f"true-{rank}.hvt", tmp_path / f"wrong-{rank}.hvt", *wrong)
    true, _ = announcements(sorted(tmp_path.glob("true-*")))
    shown, clocks = announcements(sorted(tmp_path.glob("wrong-*")))
    error_us = (shown["at_ns"] - true["at_ns"]).abs() / 1000
    assert len(error_us) > RANKS * 50 and not error_us.isna().any()
    # A round trip tells an offset to half of itself, whatever else the machine does.
    bound_us = max(100.0, *(fit["round_trip_us"] / 2 for fit in clocks.values()))
    assert error_us.quantile(0.95) <= bound_us
    by_collective = shown.groupby(["name", "seq"], observed=True)
    assert (by_collective["end_ns"].min() >= by_collective["begin_ns"].max()).all()
