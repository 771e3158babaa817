"""What the raw traces of a running launch say: its tensors, and communication waited for."""

from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np

from hvdtune.errors import TraceFormatError
from hvdtune.timeline import KINDS, merge
from hvdtune.timeline.readers.hvt import read_rank_file
from hvdtune.timeline.schema import COLLECTIVES

# A name seen less often belongs to the start or to an evaluation, not to steps.
_RECURS = 3
_KIND_SHIFT = np.uint64(48)


def tensor_bytes(trace: Path) -> tuple[int, ...]:
    """Bytes of every recurring request in one rank's raw trace; none where it cannot be read."""
    try:
        records = read_rank_file(trace).records
    except TraceFormatError:
        return ()
    codes = [KINDS[name].code for name in COLLECTIVES]
    sent = records[np.isin(records["duration_and_kind"] >> _KIND_SHIFT, codes)]
    names, row, counts = np.unique(sent["name"], return_inverse=True, return_counts=True)
    largest = np.zeros(len(names), np.int64)
    np.maximum.at(largest, row, sent["arg"].astype(np.int64))
    return tuple(int(size) for size in largest[counts >= _RECURS])


def exposed_s(traces: Sequence[Path], blocks: Sequence[Collection[int]]) -> list[float]:
    """Seconds of exposed communication in the steps of each block, of the rank with most.

    Exposed is the time from a rank's last announcement in a step, when its backward pass has
    nothing more to give, to the end of everything announced in it. An optimizer that announces
    gradients from hooks waits exactly then.

    Raises TraceFormatError when a trace cannot be read or lacks the steps.
    """
    by_rank = [_exposed_ns(path, blocks) for path in traces]
    return [max(ranks) / 1e9 for ranks in zip(*by_rank, strict=True)]


def _exposed_ns(path: Path, blocks: Sequence[Collection[int]]) -> list[int]:
    wanted = sorted({step for block in blocks for step in block})
    events = merge([path]).events
    steps = events[events["kind"] == "STEP"]
    steps = steps[steps["seq"].isin(wanted)]
    if len(steps) < len(wanted):
        raise TraceFormatError(f"{path}: lacks {len(wanted) - len(steps)} steps", str(path))
    asked = events[events["kind"] == "NEGOTIATE"]
    done = events[events["kind"].isin(["ALLREDUCE"])]
    both = asked[["name", "seq", "begin_ns"]].merge(
        done[["name", "seq", "end_ns"]], on=["name", "seq"]
    )
    begin, end = both["begin_ns"].to_numpy(), both["end_ns"].to_numpy()
    order = np.argsort(begin, kind="stable")
    begin, end = begin[order], end[order]
    first = np.searchsorted(begin, steps["begin_ns"].to_numpy())
    behind = np.searchsorted(begin, steps["end_ns"].to_numpy())
    spans = zip(steps["seq"].tolist(), first.tolist(), behind.tolist(), strict=True)
    exposed = {step: int(end[a:b].max() - begin[b - 1]) for step, a, b in spans if b > a}
    return [sum(exposed.get(step, 0) for step in block) for block in blocks]
