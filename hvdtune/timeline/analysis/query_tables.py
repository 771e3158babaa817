"""What the tables and columns of queries in SQL mean, and what their values are in."""

from collections.abc import Mapping
from dataclasses import dataclass

from hvdtune.timeline.analysis.quantities import QUANTITIES
from hvdtune.timeline.model.schema import KINDS


@dataclass(frozen=True)
class SqlColumn:
    """A column of a table.

    Attributes:
        meaning: what a value is.
        unit: of a value; "" where it has none.
        quantity: the key in `QUANTITIES` of what its mean, or its number of rows, is; "": of none.
    """

    meaning: str
    unit: str = ""
    quantity: str = ""


@dataclass(frozen=True)
class SqlTable:
    """A table of queries.

    Attributes:
        rows: what a row is.
        columns: by their names, in their order.
        quantity: the key in `QUANTITIES` of its number of rows; "": of none.
    """

    rows: str
    columns: Mapping[str, SqlColumn]
    quantity: str = ""


_BEGIN = SqlColumn("when it begins; 0 is the first event of the trace", "ns")
_SAID = "; its meaning depends on the kind, see below"

TABLES: Mapping[str, SqlTable] = {
    "slices": SqlTable(
        "one slice, instant, value of a counter or end of an arrow: all that a viewer would draw",
        {
            "rank": SqlColumn("the rank; -1 if unknown"),
            "kind": SqlColumn("one of the kinds below; empty if unknown"),
            "name": SqlColumn("its name in the file"),
            "tensor": SqlColumn("its tensor; empty if it has none"),
            "begin_ns": _BEGIN,
            "end_ns": SqlColumn("when it ends; for instants and counters, when it begins", "ns"),
            "open": SqlColumn("true if the trace lacks its end; end_ns is then the end of "
            "the thread"),
            "seq": SqlColumn(
                "the number of the step, or of the operation among those of the same name; -1 if "
                "unknown"
            ),
            "bucket": SqlColumn("the number of the bucket of its tensors; -1 if unknown"),
            "bytes": SqlColumn("the size of the tensor or bucket; -1 if unknown", "bytes"),
            "process_set": SqlColumn("0 for all ranks; -1 if unknown"),
            "cached": SqlColumn("1 for an announcement that hit the response cache, 0 for a "
                                "miss; -1 if unknown"),
            "phase": SqlColumn("the phase letter of the Chrome event: X for a slice, i for "
                               "an instant, C for a counter, s, t and f for arrows"),
            "category": SqlColumn("the category in the file"),
            "process": SqlColumn("the title of its process"),
            "thread": SqlColumn("the title of its thread"),
            "pid": SqlColumn("the process in the file, as text"),
            "tid": SqlColumn("the thread in the file, as text"),
            "id": SqlColumn("the id of an asynchronous slice or an arrow; empty for others"),
            "args": SqlColumn("its other fields in the file, as JSON text; empty if none"),
            "file": SqlColumn("the number of its file among the opened files, from 0"),
        },
        "slices",
    ),
    "events": SqlTable(
        "one slice of one of hvdtune's kinds, or one derived from slices of other kinds",
        {
            "rank": SqlColumn("the rank; 0 if unknown"),
            "kind": SqlColumn("one of hvdtune's own kinds below"),
            "name": SqlColumn("its tensor, or a text" + _SAID),
            "begin_ns": _BEGIN,
            "end_ns": SqlColumn("when it ends; for some instants, begin_ns plus a time" + _SAID,
                                "ns"),
            "seq": SqlColumn("a number" + _SAID),
            "bucket": SqlColumn("the number of its bucket, or another number" + _SAID),
            "arg": SqlColumn("a number" + _SAID),
        },
        "events",
    ),
    "steps": SqlTable(
        "one step of one rank; only steps that every rank has, without the first ones; a time is "
        "NULL if the trace does not record it",
        {
            "rank": SqlColumn("its rank"),
            "step": SqlColumn("its number"),
            "begin_ns": _BEGIN,
            "end_ns": SqlColumn("when it ends", "ns"),
            "step_ms": SqlColumn("its duration", "ms", "step-time"),
            "blocked_ms": SqlColumn("waiting for communication; step_ms minus it is busy time",
                                    "ms", "waiting"),
            "compute_ms": SqlColumn("computing: the step without the other parts; it includes "
                                    "time off the processor if off_processor_ms is NULL", "ms"),
            "input_ms": SqlColumn("in the script's spans named input", "ms"),
            "gc_ms": SqlColumn("in Python's garbage collections", "ms"),
            "checkpoint_ms": SqlColumn("in the script's spans named checkpoint", "ms"),
            "no_processor_ms": SqlColumn("ready to run, without a processor", "ms",
                                         "lost-processor-time"),
            "gpu_idle_ms": SqlColumn("GPU idle, in the rest of the step", "ms"),
            "wait_ms": SqlColumn("waiting for ranks", "ms", "waiting-for-ranks"),
            "negotiate_ms": SqlColumn("waiting for negotiation", "ms", "waiting-for-negotiation"),
            "exposed_ms": SqlColumn("waiting for buckets", "ms", "exposed"),
            "communicate_ms": SqlColumn("a bucket is in progress, hidden or not; the quantity is "
                                        "its sum in % of the sum of step_ms", "ms",
                                        "communicating"),
            "ran_ms": SqlColumn("on a processor", "ms"),
            "off_processor_ms": SqlColumn("the script's thread neither ran nor was ready to run; "
                                          "it slept, or waited for a device", "ms"),
            "idle_ms": SqlColumn("the GPU is idle and the script does not wait for "
                                 "operations", "ms"),
        },
    ),
}  # fmt: skip

KIND_MEANINGS: Mapping[str, str] = {
    "STEP": "a step of training",
    "NEGOTIATE": "from the announcement of a tensor to its response",
    "LATE": "an instant of hvdtune 0.1: how late the last rank announced a tensor",
    "QUEUE": "from the response to the begin of the bucket",
    "ALLREDUCE": "the collective, while its bucket is in progress",
    "BROADCAST": "as ALLREDUCE",
    "ALLGATHER": "as ALLREDUCE",
    "BARRIER": "as ALLREDUCE",
    "BUCKET": "tensors that travel together",
    "PACK": "tensors are copied into a bucket",
    "REDUCE": "contributions of ranks are reduced",
    "EXCHANGE": "bytes are sent and received",
    "UNPACK": "results are copied out of a bucket",
    "WAIT": "communication waits for another rank",
    "CYCLE": "an instant: rank 0's responses have come",
    "KNOB_ADOPTED": "an instant: another setting is in use",
    "CLOCK": "an instant: the offset to rank 0's clock was measured",
    "ALLTOALL": "as ALLREDUCE",
    "REDUCESCATTER": "as ALLREDUCE",
    "JOIN": "as ALLREDUCE",
    "SPAN": "a span recorded by the script",
    "BLOCKED": "the script waits for operations",
    "PEER": "an exchange waits only for the part of one rank",
    "STREAM_WAIT": "the stream of a GPU waits for a bucket",
    "ENQUEUE_WAIT": "the script waits until operations are on a stream",
    "READY": "a rank announced a tensor, in a timeline written by Horovod",
    "COMPUTE": "an operator or a kernel",
    "COPY": "a copy between host and device",
    "INPUT": "a data loader",
    "LAUNCH": "the call that starts a collective",
}


def page() -> str:
    """`docs/sql-tables.md`."""
    parts = [_HEAD]
    for name, table in TABLES.items():
        count = f"\nTheir number is the quantity {_link(table.quantity)}." if table.quantity else ""
        rows = [
            f"| `{column}` | {each.meaning} | {each.unit} | {_link(each.quantity)} |"
            for column, each in table.columns.items()
        ]
        head = f"\n## `{name}`\n\nA row is {table.rows}.{count}\n"
        parts.append("\n".join([head, "| column | meaning | unit | quantity |", "|---|---|---|---|",
                                *rows, ""]))  # fmt: skip
    return "".join([*parts, _kinds()])


def _link(key: str) -> str:
    return f"[{QUANTITIES[key].title}](quantities.md#{key})" if key else ""


def _kinds() -> str:
    rows = []
    for name, meaning in KIND_MEANINGS.items():
        kind = KINDS.get(name)
        fields = {} if kind is None else kind.fields
        said = [fields.get(column, "") for column in ("seq", "bucket", "arg", "name")]
        if kind is not None and kind.row == "tensor":
            said[3] = "tensor"
        said.append(kind.duration if kind is not None else "")
        cells = " | ".join(f"`{text}`" if text else "" for text in said)
        rows.append(f"| `{name}` | {meaning} | {cells} |")
    return _KINDS + "\n".join(rows) + "\n"


_HEAD = """\
# Tables of queries in SQL

`hvdtune timeline query` and the dashboard's page "Query" answer [queries](timeline.md) over three
tables. This page is made from `hvdtune/timeline/analysis/query_tables.py`. If the
lists below name a quantity for a column, that quantity is the mean of the column over all rows, as
shown on every page of the dashboard, unless the meaning of the column defines something else.
"""
_KINDS = """
## Kinds

The last five columns give the contents of the columns of `events` for events of the kind. An empty
cell is 0 or an empty text; an empty time means that the event lasts from its begin to its end.
Values whose names end in `_us` are in us; `offset_ns` and all times are in ns. `arg` of `NEGOTIATE`
is twice the number of the process set, plus 1 if the tensor hit the response cache. `seq` of `PEER`
is the rank plus 1. `READY`, `COMPUTE`, `COPY`, `INPUT` and `LAUNCH` are kinds of `slices` only.
Tensors of one bucket repeat its time, so do not add their times.

| kind | meaning | `seq` | `bucket` | `arg` | `name` | `end_ns` - `begin_ns` |
|---|---|---|---|---|---|---|
"""
