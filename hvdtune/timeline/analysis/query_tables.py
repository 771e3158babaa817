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
_SAID = "; what it is depends on the kind, see below"

TABLES: Mapping[str, SqlTable] = {
    "slices": SqlTable(
        "one slice, instant, value of a counter or end of an arrow: all that a viewer would draw",
        {
            "rank": SqlColumn("who did it; -1 where the file does not say"),
            "kind": SqlColumn("one of the kinds below; empty where hvdtune does not know it"),
            "name": SqlColumn("what the file calls it"),
            "tensor": SqlColumn("the tensor that it is about; empty where it is about none"),
            "begin_ns": _BEGIN,
            "end_ns": SqlColumn("when it ends; of instants and counters when it begins", "ns"),
            "open": SqlColumn("whether the file has no end of it, so that end_ns is its thread's"),
            "seq": SqlColumn(
                "the number of the operation among those of its name, or of the step; -1 where "
                "it is not known"
            ),
            "bucket": SqlColumn("the number of the bucket of its tensors; -1 where not known"),
            "bytes": SqlColumn("the size of the tensor or bucket; -1 where not known", "bytes"),
            "process_set": SqlColumn("0 for all ranks; -1 where not known"),
            "cached": SqlColumn("1 for an announcement that the response cache knew, 0 for one "
                                "that it did not; -1 where not known"),
            "phase": SqlColumn("the letter of the Chrome event that it was: X for a slice, i for "
                               "an instant, C for a counter, s, t and f for arrows"),
            "category": SqlColumn("the category in the file"),
            "process": SqlColumn("the title of its process"),
            "thread": SqlColumn("the title of its thread"),
            "pid": SqlColumn("the process in the file, as text"),
            "tid": SqlColumn("the thread in the file, as text"),
            "id": SqlColumn("of an asynchronous slice or an arrow; else empty"),
            "args": SqlColumn("what else the file says of it, as JSON text; empty for nothing"),
            "file": SqlColumn("the number of its file among those that were opened, from 0"),
        },
        "slices",
    ),
    "events": SqlTable(
        "one slice of a kind of hvdtune's, or one that follows from others",
        {
            "rank": SqlColumn("who did it; 0 where the file does not say"),
            "kind": SqlColumn("one of hvdtune's own kinds below"),
            "name": SqlColumn("the tensor that it is about, or a text" + _SAID),
            "begin_ns": _BEGIN,
            "end_ns": SqlColumn("when it ends; of some instants begin_ns and a time" + _SAID, "ns"),
            "seq": SqlColumn("a number" + _SAID),
            "bucket": SqlColumn("the number of its bucket, or another number" + _SAID),
            "arg": SqlColumn("a number" + _SAID),
        },
        "events",
    ),
    "steps": SqlTable(
        "one step of one rank, of the steps that every rank has, without the first ones; a time is "
        "NULL where the trace does not tell it",
        {
            "rank": SqlColumn("whose step it is"),
            "step": SqlColumn("its number"),
            "begin_ns": _BEGIN,
            "end_ns": SqlColumn("when it ends", "ns"),
            "step_ms": SqlColumn("how long it lasts", "ms", "step-time"),
            "blocked_ms": SqlColumn("waiting for communication; step_ms without it is busy time",
                                    "ms", "waiting"),
            "compute_ms": SqlColumn("computing: what is left of the step without the other parts; "
                                    "time off the processor is in it only where "
                                    "off_processor_ms is NULL", "ms"),
            "input_ms": SqlColumn("in spans of the script called input", "ms"),
            "gc_ms": SqlColumn("in garbage collections of Python's", "ms"),
            "checkpoint_ms": SqlColumn("in spans of the script called checkpoint", "ms"),
            "no_processor_ms": SqlColumn("ready to run, without a processor", "ms",
                                         "lost-processor-time"),
            "gpu_idle_ms": SqlColumn("of what is left, when the GPU ran nothing", "ms"),
            "wait_ms": SqlColumn("waiting for ranks", "ms", "waiting-for-ranks"),
            "negotiate_ms": SqlColumn("waiting for negotiation", "ms", "waiting-for-negotiation"),
            "exposed_ms": SqlColumn("waiting for buckets", "ms", "exposed"),
            "communicate_ms": SqlColumn("while a bucket is under way, hidden or not; the quantity "
                                        "is its sum in % of that of step_ms", "ms",
                                        "communicating"),
            "ran_ms": SqlColumn("on a processor", "ms"),
            "off_processor_ms": SqlColumn("the script's thread neither ran nor was ready to run; "
                                          "it slept, or waited for a device", "ms"),
            "idle_ms": SqlColumn("while the GPU ran nothing and the script did not wait for "
                                 "operations", "ms"),
        },
    ),
}  # fmt: skip

KIND_MEANINGS: Mapping[str, str] = {
    "STEP": "a step of training",
    "NEGOTIATE": "from the announcement of a tensor to its response",
    "LATE": "an instant of hvdtune 0.1: how late the last rank announced a tensor",
    "QUEUE": "from the response to the begin of the bucket",
    "ALLREDUCE": "the collective, while its bucket is under way",
    "BROADCAST": "the same",
    "ALLGATHER": "the same",
    "BARRIER": "the same",
    "BUCKET": "tensors that travel together",
    "PACK": "tensors are copied into a bucket",
    "REDUCE": "contributions of ranks are folded",
    "EXCHANGE": "bytes travel",
    "UNPACK": "results are copied out of a bucket",
    "WAIT": "communication waits for another rank",
    "CYCLE": "an instant: rank 0's responses have come",
    "KNOB_ADOPTED": "an instant: another setting is in force",
    "CLOCK": "an instant: the offset to rank 0's clock was measured",
    "ALLTOALL": "as ALLREDUCE",
    "REDUCESCATTER": "as ALLREDUCE",
    "JOIN": "as ALLREDUCE",
    "SPAN": "what the script says that it does",
    "BLOCKED": "the script waits for operations",
    "PEER": "an exchange lacks nothing but the part of one rank",
    "STREAM_WAIT": "the stream of a GPU waits for a bucket",
    "ENQUEUE_WAIT": "the script waits until operations are on a stream",
    "READY": "a rank announced a tensor, in a timeline of Horovod's",
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
tables. This page is made from `hvdtune/timeline/analysis/query_tables.py`. Where a quantity is
named, the mean of the column over all rows is that quantity, as every page of the dashboard shows
it, unless the meaning says otherwise.
"""
_KINDS = """
## Kinds

The last five columns say what the columns of `events` hold for events of the kind; an empty cell is
0 or an empty text, and for the time, that the event lasts from one to the other. Values whose names
end in `_us` are in us, `offset_ns` and all times are in ns. `arg` of `NEGOTIATE` is twice the
number of the process set, and 1 more where the response cache knew the tensor; `seq` of `PEER` is
the rank and 1 more. `READY`, `COMPUTE`, `COPY`, `INPUT` and `LAUNCH` are kinds of `slices` alone.
Tensors of one bucket repeat its time, so never add it up.

| kind | what it is | `seq` | `bucket` | `arg` | `name` | `end_ns` - `begin_ns` |
|---|---|---|---|---|---|---|
"""
