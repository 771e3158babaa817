"""What NCCL's Inspector and its RAS say, as NCCL's source writes it."""

import json
from pathlib import Path
from typing import Any

NOW_US = 1_748_030_377_748_202


def line(rank: int, number: int, lasts_us: float, ranks: int = 3, **more: Any) -> dict[str, Any]:
    """A line of the Inspector's."""
    return {
        "header": {"id": "0x7f8c496ae9f661", "rank": rank, "n_ranks": ranks, "nnodes": 1},
        "metadata": {
            "inspector_output_format_version": "v4.0",
            "git_rev": "",
            "rec_mechanism": "profiler_plugin",
            "dump_timestamp_us": NOW_US + number * 10_000,
            "hostname": "node7",
            "pid": 100 + rank,
        },
        "coll_perf": {
            "coll": "AllReduce",
            "coll_sn": number,
            "coll_msg_size_bytes": 4096,
            "coll_exec_time_us": lasts_us,
            "coll_timing_source": "kernel_gpu",
            "coll_algobw_gbs": 1.5,
            "coll_busbw_gbs": 2.25,
        }
        | more,
    }


def write_inspector(folder: Path, late: int | None = None, ranks: int = 3, count: int = 20) -> Path:
    """The logs of a job's processes, of which one may come 2 ms late to each allreduce."""
    for rank in range(ranks):
        lines = [
            json.dumps(line(rank, number, 500 if rank == late else 2500 + rank + number % 3, ranks))
            for number in range(count)
        ]
        (folder / f"node7-pid{100 + rank}.log").write_text("\n".join(lines) + "\n")
    return folder


def ras_rank(rank: int, calls: int = 42, **status: Any) -> dict[str, Any]:
    """A rank in an answer of the RAS's."""
    return {
        "rank": rank,
        "host": "10.0.0.7",
        "pid": 100 + rank,
        "cuda_dev": rank,
        "nvml_dev": rank,
        "status": {
            "init_state": 0,
            "async_error": 0,
            "finalize_called": False,
            "destroy_flag": False,
            "abort_flag": False,
        }
        | status,
        "collective_counts": {"AllReduce": calls, "Broadcast": 3},
    }


def write_ras(
    path: Path, ranks: list[dict[str, Any]], missing: list[dict[str, Any]] | None = None
) -> Path:
    """An answer about one communicator."""
    communicator = {
        "hash": "0x5a3c",
        "secondary_hash": "0x1:0x2",
        "size": len(ranks) + len(missing or []),
        "ranks_count": len(ranks),
        "missing_ranks_count": len(missing or []),
        "ranks": ranks,
        "missing_ranks": missing or [],
    }
    whole = {
        "nccl_version": "2.28.9",
        "cuda_runtime_version": 12080,
        "cuda_driver_version": 12080,
        "timestamp": "2026-01-02 03:04:05",
        "communicators_count": 1,
        "communicators": [communicator],
        "ras": {"collection_time_sec": 0.1, "timeouts_count": 0},
    }
    path.write_text(json.dumps(whole, indent=2))
    return path
