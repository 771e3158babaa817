"""What the raw traces of a running launch say: its tensors, and communication waited for."""

from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hvdtune.errors import TraceFormatError
from hvdtune.timeline.model.schema import COLLECTIVES, KINDS
from hvdtune.timeline.reading.formats.hvt import read_rank_file

# A name seen less often belongs to the start or to an evaluation, not to steps.
_RECURS = 3
_KIND_SHIFT = np.uint64(48)
_SENT = [KINDS[name].code for name in COLLECTIVES]
Records = NDArray[np.void]


def tensor_bytes(trace: Path) -> tuple[int, ...]:
    """Bytes of every recurring request in one rank's raw trace; none where it cannot be read."""
    try:
        records = read_rank_file(trace).records
    except TraceFormatError:
        return ()
    sent = records[np.isin(_kinds(records), _SENT)]
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
    records = read_rank_file(path).records
    wanted = np.array(sorted({step for block in blocks for step in block}))
    steps = records[_kinds(records) == KINDS["STEP"].code]
    steps = steps[np.isin(steps["seq"], wanted)]
    if len(steps) < len(wanted):
        raise TraceFormatError(f"{path}: lacks {len(wanted) - len(steps)} steps", str(path))
    recent = records[records["begin_ns"] >= steps["begin_ns"].min()]
    kinds = _kinds(recent)
    begin, end = _joined(recent[kinds == KINDS["NEGOTIATE"].code], recent[np.isin(kinds, _SENT)])
    first = np.searchsorted(begin, steps["begin_ns"])
    behind = np.searchsorted(begin, _ends(steps))
    spans = zip(steps["seq"].tolist(), first.tolist(), behind.tolist(), strict=True)
    exposed = {step: int(end[a:b].max() - begin[b - 1]) for step, a, b in spans if b > a}
    return [sum(exposed.get(step, 0) for step in block) for block in blocks]


def _joined(asked: Records, done: Records) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """When each operation was announced, ascending, and when it was done."""
    which = [
        rows["name"].astype(np.uint64) << np.uint64(32) | rows["seq"] for rows in (asked, done)
    ]
    _, one, other = np.intersect1d(*which, return_indices=True)
    begin, end = asked["begin_ns"][one], _ends(done)[other]
    order = np.argsort(begin, kind="stable")
    return begin[order], end[order]


def _kinds(records: Records) -> NDArray[np.uint64]:
    return np.asarray(records["duration_and_kind"] >> _KIND_SHIFT)


def _ends(records: Records) -> NDArray[np.uint64]:
    lasted = records["duration_and_kind"] & ((np.uint64(1) << _KIND_SHIFT) - np.uint64(1))
    return np.asarray(records["begin_ns"] + lasted)
