"""Timelines as Horovod writes them."""

import json
from pathlib import Path

STEP_US, TENSORS = 30_000, 4


def write_horovod_timeline(
    path: Path, steps: int, late_us: list[int], *, every: int = 1, known: int | None = None
) -> Path:
    """Writes the timeline of a job in which rank r announces late_us[r] late in every n-th step.

    Steps beyond `known` have no ticks, as with a response cache; the last tensor of the last step
    is missing, as in a job that was killed.
    """
    events = [
        {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": f"g.{pid}"}}
        for pid in range(1, TENSORS + 2)
    ]
    rows = [(0, TENSORS + 1, 0)]  # once, before the steps, as a broadcast is
    rows += [(step, pid, STEP_US * (step + 1) + 2_000 * pid)
             for step in range(steps) for pid in range(1, TENSORS + 1)][:-1]  # fmt: skip
    for step, pid, begin in rows:
        at = [begin + (late if step % every == 0 else 0) for late in late_us]
        seen = known is None or step < known
        ticks = [
            {"ph": "X", "name": str(rank), "pid": pid, "ts": ts, "dur": 0}
            for ts, rank in sorted((ts, rank) for rank, ts in enumerate(at))
            if seen
        ]
        end = max(at) + 1
        events += [
            {"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "pid": pid, "ts": min(at)},
            *ticks,
            {"ph": "E", "pid": pid, "ts": end},
            {"ph": "B", "name": "ALLREDUCE", "pid": pid, "ts": end + 1},
            {"ph": "E", "pid": pid, "ts": end + 500},
        ]
    path.write_text(json.dumps(events))
    return path
