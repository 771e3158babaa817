"""Dumps of the Flight Recorder, as PyTorch's source writes them."""

import json
import pickle
from pathlib import Path
from typing import Any

NOW_NS = 1_700_000_000_000_000_000


def entry(
    seq: int, state: str = "completed", op: str = "nccl:all_reduce", size: int = 1024, **more: Any
) -> dict[str, Any]:
    """A collective, called at the millisecond of its number."""
    called_ns = NOW_NS + seq * 1_000_000
    return {
        "record_id": seq,
        "pg_id": 0,
        "process_group": ("0", "default_pg"),
        "thread_name": "pt_main",
        "thread_id": "1",
        "collective_seq_id": seq,
        "p2p_seq_id": 0,
        "op_id": seq,
        "profiling_name": op,
        "time_created_ns": called_ns,
        "input_sizes": [[size, 2]],
        "input_dtypes": ["Float"],
        "output_sizes": [[size, 2]],
        "output_dtypes": ["Float"],
        "state": state,
        "time_discovered_started_ns": None if state == "scheduled" else called_ns + 1000,
        "time_discovered_completed_ns": called_ns + 500_000 if state == "completed" else None,
        "retired": state == "completed",
        "timeout_ms": 600_000,
        "is_p2p": False,
        "frames": [
            {"name": "all_reduce", "filename": "/x/torch/distributed/c10d.py", "line": 5},
            {"name": "train", "filename": "/home/me/train.py", "line": 40 + seq},
        ],
    } | more


def dump(entries: list[dict[str, Any]], world: int) -> dict[str, Any]:
    """A dump of one rank of a group of all."""
    ranks = str([*range(world)])
    return {
        "version": "2.10",
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": ranks}},
        "comm_lib_version": "2.21.5",
        "pg_status": {"0": {"last_enqueued_collective": len(entries)}},
        "entries": entries,
    }


def write(
    folder: Path, entries: list[list[dict[str, Any]]], form: str = "pickle", world: int = 0
) -> Path:
    """A file of each rank."""
    for rank, own in enumerate(entries):
        whole = dump(own, world or len(entries))
        path = folder / f"nccl_trace_rank_{rank}"
        if form == "pickle":
            path.write_bytes(pickle.dumps(whole, protocol=2))
        else:
            path.write_text(json.dumps(whole, sort_keys=True, separators=(",", ":")))
    return folder
