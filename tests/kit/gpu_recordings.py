"""Recordings of a training on GPUs whose host launches ahead of them and waits for nothing.

Of each step of 10 ms a GPU computes from 0 to 5 ms, a collective runs from 4 to 8 ms, in which 1 ms
is hidden, and nothing from 8 to 10 ms.
"""

from pathlib import Path
from typing import Any

from hvdtune.timeline import open_trace
from hvdtune.timeline.writing.write_slices import write_slices
from tests.kit import rank_files
from tests.kit.traces import event, write

RANKS, STEPS, STEP_MS = 2, 16, 10
_NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
_ORIGIN_UNIX_NS = 1_700_000_000 * 10**9


def on_gpu(
    name: str, at_us: float, lasts_us: float, stream: int = 7, category: str = "kernel"
) -> dict[str, Any]:
    return event("X", at_us, name, dur=lasts_us, cat=category, pid=0, tid=stream)


def write_profiles(folder: Path, *, collectives: bool = True) -> Path:
    """torch.profiler's files of all ranks, with or without what torch.distributed does."""
    for rank in range(RANKS):
        events = []
        for step in range(STEPS):
            at = 1000 * STEP_MS * step
            mark = event("X", at, f"ProfilerStep#{step + 3}", dur=10_000, cat="user_annotation")
            call = event("X", at + 500, "nccl:all_reduce", dur=10, cat="user_annotation")
            events += [{**mark, "pid": 1, "tid": 1}, on_gpu("gemm", at, 5000)]
            if collectives:
                events += [{**call, "pid": 1, "tid": 1}, on_gpu(_NCCL, at + 4000, 4000, stream=20)]
        info = {"rank": rank, "world_size": RANKS, "backend": "nccl"}
        path = folder / f"profile_rank{rank}.json"
        write(path, *events, distributedInfo=info, baseTimeNanoseconds=_ORIGIN_UNIX_NS)
    return folder


def write_timelines(
    folder: Path,
    *,
    waits_from_ms: int = 5,
    marked_every_ms: int = STEP_MS,
    ended: int = STEPS,
    seen: int = RANKS,
    lacks_us: int = 0,
) -> Path:
    """hvdtune's recordings of the same: buckets run on the GPU, whose stream waits for them.

    Args:
        folder: where to.
        waits_from_ms: when the stream comes to its wait, within a step of the GPU.
        marked_every_ms: how long a step takes the script, which may be ahead of the GPU.
        ended: of so many steps the bucket ends while it is recorded.
        seen: of so many ranks the waits of streams are recorded.
        lacks_us: of each step, in which the script could run and had no processor; so long it ran.
    """
    ms = 10**6
    for rank in range(RANKS):
        records = []
        for step in range(STEPS):
            at, marked = STEP_MS * step * ms, marked_every_ms * step * ms
            key = {"bucket": step + 1, "seq": step, "name": 1}
            cpu = {"arg": lacks_us, "bucket": lacks_us}
            records += [
                rank_files.record("STEP", marked, marked + marked_every_ms * ms, seq=step, **cpu),
                rank_files.record("NEGOTIATE", marked, marked + ms, arg=1, **key),
                rank_files.record("ENQUEUE_WAIT", marked, marked + ms),
            ]
            if step >= ended:
                continue
            records += [
                rank_files.record("ALLREDUCE", at + 4 * ms, at + 8 * ms, arg=4096, **key),
                rank_files.record(
                    "BUCKET", at + 4 * ms, at + 8 * ms, bucket=step + 1, seq=1, arg=4096
                ),
            ]
            waits = (at + waits_from_ms * ms, at + 8 * ms)
            if rank < seen:
                records.append(rank_files.record("STREAM_WAIT", *waits, bucket=step + 1))
        when = {"unix_ns": _ORIGIN_UNIX_NS, "monotonic_ns": 0}
        rank_files.rank_file(folder, rank, records, size=RANKS, **when)
    return folder


def write_both(folder: Path) -> Path:
    """One trace of the recordings of hvdtune and torch.profiler."""
    write_profiles(folder, collectives=False)
    write_timelines(folder)
    merged = folder / "merged.json"
    write_slices(open_trace(folder.iterdir()), merged, "chrome")
    return merged


RECORDED_BY = {"torch.profiler": write_profiles, "hvdtune and torch.profiler": write_both}
ALL = {**RECORDED_BY, "hvdtune": write_timelines}
