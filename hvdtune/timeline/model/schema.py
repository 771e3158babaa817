"""What a trace is: kinds of events, the record they are stored in, and the table of all of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Column = Literal["name", "seq", "bucket", "arg"]
# What a script may say it does (SPAN), and what hvdtune.torch says for it.
INPUT, GARBAGE, CHECKPOINT = "input", "gc", "checkpoint"
Row = Literal["steps", "script", "communication", "clock", "tensor", "process"]


@dataclass(frozen=True)
class Kind:
    """One kind of event.

    Attributes:
        code: its number in files.
        row: where exports draw it; events of row "tensor" are on the row of the tensor they name.
        fields: column -> what its value is for this kind; columns not listed are 0 or "".
        duration: what end - begin is when the event is an instant, "" when it is nothing.
    """

    code: int
    name: str
    row: Row
    fields: Mapping[Column, str]
    span: bool = True
    duration: str = ""


_INSIDE_BUCKET: Mapping[Column, str] = {"bucket": "bucket", "arg": "bytes"}
_COLLECTIVE: Mapping[Column, str] = {"seq": "seq", "bucket": "bucket", "arg": "bytes"}

_TABLE = (
    Kind(1, "STEP", "steps", {"seq": "step", "bucket": "waited_us", "arg": "ran_us"}),
    Kind(2, "NEGOTIATE", "tensor", {"seq": "seq", "bucket": "bucket", "arg": "cached"}),
    Kind(3, "LATE", "tensor", {"seq": "seq", "arg": "last_rank"}, span=False, duration="late_us"),
    Kind(4, "QUEUE", "tensor", {"seq": "seq", "bucket": "bucket", "arg": "process_set"}),
    Kind(5, "ALLREDUCE", "tensor", _COLLECTIVE),
    Kind(6, "BROADCAST", "tensor", _COLLECTIVE),
    Kind(7, "ALLGATHER", "tensor", _COLLECTIVE),
    Kind(8, "BARRIER", "tensor", _COLLECTIVE),
    Kind(
        9,
        "BUCKET",
        "communication",
        {"bucket": "bucket", "seq": "tensors", "arg": "bytes", "name": "reason"},
    ),
    Kind(10, "PACK", "communication", _INSIDE_BUCKET),
    Kind(11, "REDUCE", "communication", _INSIDE_BUCKET),
    Kind(12, "EXCHANGE", "communication", _INSIDE_BUCKET),
    Kind(13, "UNPACK", "communication", _INSIDE_BUCKET),
    Kind(14, "WAIT", "communication", _INSIDE_BUCKET),
    Kind(15, "CYCLE", "process", {"seq": "cycle", "arg": "tensors", "bucket": "bytes"}, span=False),
    Kind(16, "KNOB_ADOPTED", "process", {"arg": "version", "name": "setting"}, span=False),
    Kind(17, "CLOCK", "clock", {"seq": "offset_ns"}, span=False, duration="round_trip_us"),
    Kind(18, "ALLTOALL", "tensor", _COLLECTIVE),
    Kind(19, "REDUCESCATTER", "tensor", _COLLECTIVE),
    Kind(20, "JOIN", "tensor", _COLLECTIVE),
    Kind(21, "SPAN", "script", {"name": "what"}),
    Kind(22, "BLOCKED", "script", {}),
    Kind(23, "PEER", "communication", {"bucket": "bucket", "seq": "peer"}),
)

KINDS: Mapping[str, Kind] = {kind.name: kind for kind in _TABLE}
KIND_NAMES: tuple[str, ...] = tuple(KINDS)
COLLECTIVES: tuple[str, ...] = (
    "ALLREDUCE",
    "BROADCAST",
    "ALLGATHER",
    "BARRIER",
    "ALLTOALL",
    "REDUCESCATTER",
    "JOIN",
)

RECORD = np.dtype(
    [
        ("begin_ns", "<u8"),
        ("duration_and_kind", "<u8"),
        ("name", "<u4"),
        ("seq", "<u4"),
        ("bucket", "<u4"),
        ("arg", "<u4"),
    ]
)

# arg of NEGOTIATE is this many times the process set, plus 1 if the announcement hit the cache.
PROCESS_SET_UNIT = 2

INT_COLUMNS = ("begin_ns", "end_ns", "seq", "bucket", "arg")
COLUMNS = ("rank", "kind", "name", *INT_COLUMNS)
OTHER_COLUMNS = (
    *("rank", "kind", "name", "begin_ns", "end_ns"),
    *("category", "process", "thread", "pid", "tid", "args"),
)


@dataclass(frozen=True)
class Trace:
    """Events of all ranks on one clock.

    Attributes:
        events: one row per event, ordered by begin_ns: rank (int32), kind and name (categories of
            text), begin_ns, end_ns, seq, bucket, arg (int64; `KINDS` says what they mean). Times
            are rank 0's clock, 0 is the first event. For LATE, which only version 0.1 recorded,
            end - begin is how late the last rank was; for CLOCK, the round trip; seq of CLOCK is
            the measured offset in ns.
        meta: "ranks": {rank: metadata its file carries}; "dropped": {rank: records lost};
            "clock": {rank: see `clock.ClockFit`}; "shapes": {tensor: dtype and shape, as in
            "float32[64,3]"}, of groups several; "origin_ns" and, where known, "origin_unix_ns":
            time 0 on rank 0's monotonic clock and in ns since 1970.
        warnings: what could not be read or is not known, one sentence each.
        others: slices of kinds that only other programs record, by begin_ns; None: there are none.
            `OTHER_COLUMNS`, which `model` names, on the clock of `events`.
    """

    events: pd.DataFrame
    meta: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    others: pd.DataFrame | None = None


def make_events(columns: Mapping[str, NDArray[Any]], names: Sequence[str]) -> pd.DataFrame:
    """Build `Trace.events` from unordered columns.

    Args:
        columns: one array per column of `COLUMNS`; kind holds indices into `KIND_NAMES`, name
            indices into `names`.
        names: texts, each once.
    """
    used, codes = np.unique(columns["name"], return_inverse=True)
    texts = [names[index] for index in used]
    by_text = np.argsort(np.array(texts, dtype=object), kind="stable")
    rank_of_text = np.empty(len(texts), dtype=np.int64)
    rank_of_text[by_text] = np.arange(len(texts))
    ordered = {**columns, "name": rank_of_text[codes]}
    order = _total_order(ordered)
    kinds = pd.Index(KIND_NAMES, dtype="str")
    categories = pd.Index([texts[index] for index in by_text], dtype="str")
    kind_codes = ordered["kind"][order].astype(np.int8)
    frame: dict[str, Any] = {
        "rank": ordered["rank"][order].astype(np.int32),
        "kind": pd.Categorical.from_codes(cast("Any", kind_codes), categories=kinds),
        "name": pd.Categorical.from_codes(
            cast("Any", ordered["name"][order]), categories=categories
        ),
    }
    for name in INT_COLUMNS:
        frame[name] = ordered[name][order].astype(np.int64)
    return pd.DataFrame(frame, copy=False)


def _total_order(columns: Mapping[str, NDArray[Any]]) -> NDArray[np.intp]:
    # By begin; equal begins so that an enclosing span comes first and the order is always the
    # same. Few begins are equal, so the costly sort is kept to those.
    begin = columns["begin_ns"]
    order = np.argsort(begin, kind="stable")
    equal = begin[order][1:] == begin[order][:-1]
    tied = np.zeros(len(order), dtype=bool)
    tied[1:] |= equal
    tied[:-1] |= equal
    rows = order[tied]
    later_keys = ("arg", "bucket", "seq", "name", "kind")
    keys = [columns[key][rows] for key in later_keys]
    keys += [-columns["end_ns"][rows], columns["rank"][rows], begin[rows]]
    order[tied] = rows[np.lexsort(keys)]
    return order
