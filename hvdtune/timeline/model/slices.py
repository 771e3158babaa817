"""The one model that a trace of any format becomes: a table of slices, and what is known of it.

Columns of `Trace.slices`, one row per thing that a viewer would draw, ordered by begin_ns (equal
begins: the longer first); texts are pandas categories:

    rank         int32     who did it; -1: the file does not say
    kind         category  what it means, see `KINDS` below; "": nothing that hvdtune knows
    name         category  as in the file; for ours the kind, NEGOTIATE_ALLREDUCE and the like, or
                           of a SPAN what the script said it does
    tensor       category  the tensor it is about; "": none
    begin_ns     int64     0 is the first event of all files; `Trace.origin_unix_ns` says when
    end_ns       int64     equals begin_ns for instants and counters
    open         bool      the file has no end for it; end_ns is then the last time of its thread
    seq          int64     number of the operation among those of its name; for STEP the step; -1:
                           unknown. Equal (process_set, tensor, seq) on all ranks: one operation
    bucket       int64     number of the bucket its tensors travelled in; -1: unknown
    bytes        int64     of the tensor or bucket; -1: unknown
    process_set  int64     0: all ranks; -1: unknown
    cached       int8      1: NEGOTIATE was answered from the response cache; 0: not; -1: unknown
    phase        category  letter of the Chrome event it comes from: X (a B with its E is one X),
                           i instant, C counter, b (with its e) asynchronous slice, n its instant,
                           s t f a flow's begin, step and end; others as they are
    category     category  "cat" of the file
    process      category  title of the process in the file, and
    thread       category  of the thread ("pid 7", "tid 9" where they have none)
    pid, tid     category  as in the file, as text
    id           category  of an asynchronous slice or a flow; "": none
    args         str       the event's "args" as JSON text, those of B and E joined; "": none
    file         int16     where in `Trace.files` it comes from

Kinds are those of `schema.KINDS` (STEP, NEGOTIATE, QUEUE, ALLREDUCE ... JOIN, BUCKET, PACK, REDUCE,
EXCHANGE, UNPACK, WAIT, CYCLE, KNOB_ADOPTED, CLOCK) and `FOREIGN_KINDS`, which only other programs
record. `args` of ours: BUCKET {"tensors", "reason"}, CYCLE {"tensors", "bytes"}, KNOB_ADOPTED
{"version", "setting"}, CLOCK {"offset_ns", "round_trip_us"}.

Tensors of one bucket repeat its slice: never sum durations, take unions (`intervals.covered_ns`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from hvdtune.timeline.model.schema import KIND_NAMES

# READY: this rank announced the tensor (Horovod's ticks). COMPUTE: an operator or a kernel.
# COPY: between host and device. INPUT: a data loader. LAUNCH: the call that starts a collective.
FOREIGN_KINDS: tuple[str, ...] = ("READY", "COMPUTE", "COPY", "INPUT", "LAUNCH")
KIND_TEXTS: tuple[str, ...] = ("", *KIND_NAMES, *FOREIGN_KINDS)

COLUMNS: Mapping[str, str] = {
    "rank": "int32",
    "kind": "category",
    "name": "category",
    "tensor": "category",
    "begin_ns": "int64",
    "end_ns": "int64",
    "open": "bool",
    "seq": "int64",
    "bucket": "int64",
    "bytes": "int64",
    "process_set": "int64",
    "cached": "int8",
    "phase": "category",
    "category": "category",
    "process": "category",
    "thread": "category",
    "pid": "category",
    "tid": "category",
    "id": "category",
    "args": "str",
    "file": "int16",
}


@dataclass(frozen=True)
class File:
    """One file of a trace, or the files that one job of hvdtune's left.

    Attributes:
        format: "hvdtune", "hvdtune-json", "horovod", "kineto", "nsys", "rocpd",
            "flight-recorder", "nccl-inspector", "nccl-ras" or "chrome".
        around: what surrounds the events in the file: hosts, sizes, versions.
    """

    path: str
    format: str
    around: Mapping[str, Any] = field(default_factory=dict)


def kind_column(codes: NDArray[np.int8]) -> pd.Categorical:
    """Numbers of kinds as the model's column."""
    kinds = pd.Index(KIND_TEXTS, dtype="str")
    return pd.Categorical.from_codes(cast("Any", codes), categories=kinds)


def categorical(codes: NDArray[Any], texts: list[str]) -> pd.Categorical:
    """Numbers of texts as categories; texts that are not used are none."""
    used = np.flatnonzero(np.bincount(codes, minlength=1)) if len(codes) else np.empty(0, np.intp)
    place = np.zeros(int(used[-1]) + 1 if len(used) else 1, np.int32)
    place[used] = np.arange(len(used), dtype=np.int32)
    categories = pd.Index([texts[code] for code in used.tolist()], dtype="str")
    return pd.Categorical.from_codes(place[codes], categories=categories, validate=False)


def categories_of(values: list[str], index: NDArray[Any]) -> pd.Categorical:
    """The text of each row, from a few values (which may be equal) and the one of each row."""
    numbers: dict[str, int] = {}
    codes = np.array([numbers.setdefault(value, len(numbers)) for value in values], np.int32)
    return categorical(codes[index] if len(codes) else codes, list(numbers))
