"""The process that answers the queries of `query`, within limits that the system enforces.

DuckDB's own limits leave out the memory of vectors and the time within one function.

Its input is one Arrow stream per table of `query_tables.TABLES` and then one line of JSON per
`QueryRequest`. Its output is one frame per answer: `FRAME`, then that number of bytes. The first
frame reports that the tables are loaded.
"""

import json
import os
import resource
import select
import signal
import struct
import sys
from collections.abc import Sequence
from typing import Any, BinaryIO, Final, TypedDict

FRAME: Final = struct.Struct("<c?Q")  # kind, whether it is the last of the process, and size
READY, TABLE, REFUSED, NO_MEMORY = b"R", b"T", b"U", b"M"

MOST_THREADS: Final = 8  # each has memory of its own
_IDLE_S: Final = 300
_GRACE_S: Final = 2  # after the deadline, if the parent process did not end this one
_BATCH_ROWS: Final = 2048
_SHARE_OF_DUCKDB: Final = 0.8  # of the memory; the rest is what DuckDB does not count
# Statements that change tables.
_CHANGES: Final = frozenset(("INSERT", "UPDATE", "DELETE", "DROP", "ALTER"))


class QueryRequest(TypedDict):
    """A query and its limits; see `query.QueryLimits`."""

    sql: str
    seconds: float
    rows: int | None
    memory_mb: int | None
    answer_mb: int | None


class _RefusedError(Exception):
    """The query cannot be answered."""


def serve(names: Sequence[str]) -> None:
    """Load the tables of these names and answer requests until the input ends."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    # Whatever DuckDB prints must not reach the answers.
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    _be_killed_first()
    try:
        import pyarrow as pa

        tables = {name: pa.ipc.open_stream(requests).read_all() for name in names}
        with _connected(tables, None):
            base = _data_bytes()
    except Exception as error:  # the parent process reports it
        _send(answers, REFUSED, _one_line(error).encode(), is_last=True)
        return
    _send(answers, READY, b"")
    while select.select([requests], [], [], _IDLE_S)[0] and (line := requests.readline()):
        request: QueryRequest = json.loads(line)
        signal.setitimer(signal.ITIMER_REAL, request["seconds"] + _GRACE_S)
        kind, payload = _answer(tables, request, base)
        is_last = _is_used_up(base, request["memory_mb"])
        _send(answers, kind, payload, is_last=is_last)
        signal.setitimer(signal.ITIMER_REAL, 0)
        if is_last:
            return


def _is_used_up(base: int | None, memory_mb: int | None) -> bool:
    """Return whether memory that DuckDB keeps leaves the next query less than half of its own."""
    if base is None or memory_mb is None:
        return False
    return (_data_bytes() or 0) > base + (memory_mb << 19)


def _send(answers: BinaryIO, kind: bytes, payload: Any, *, is_last: bool = False) -> None:
    answers.write(FRAME.pack(kind, is_last, len(payload)))
    answers.write(payload)
    answers.flush()


def _be_killed_first() -> None:
    """Where memory runs out, the system ends this process and not a training."""
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")
    except OSError:
        pass  # not Linux


def _data_bytes() -> int | None:
    """Return the size of this process's private memory, None where it is unknown."""
    try:
        with open("/proc/self/status") as file:
            sizes = [line.split()[1] for line in file if line.startswith("VmData:")]
    except OSError:
        return None
    return int(sizes[0]) << 10 if sizes else None


def _connected(tables: dict[str, Any], memory_mb: int | None) -> Any:
    import duckdb

    config: dict[str, Any] = {
        "enable_external_access": "false",
        "lock_configuration": "true",
        "threads": min(MOST_THREADS, os.cpu_count() or 1),
    }
    if memory_mb is not None:
        own = max(int(memory_mb * _SHARE_OF_DUCKDB), 1)
        config |= {"memory_limit": f"{own}MB", "temp_directory": ""}
    connection = duckdb.connect(config=config)
    for name, table in tables.items():
        connection.register(name, table)
    return connection


def _answer(tables: dict[str, Any], request: QueryRequest, base: int | None) -> tuple[bytes, Any]:
    import duckdb

    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    memory_mb = request["memory_mb"]
    limit = hard
    if memory_mb is not None and base is not None:
        limit = base + (memory_mb << 20)
        limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    try:
        with _connected(tables, memory_mb) as connection:
            resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
            statements = duckdb.extract_statements(request["sql"])
            if any(each.type.name in _CHANGES for each in statements):
                raise _RefusedError("the tables of a trace cannot be changed: write a SELECT")
            return TABLE, _table(connection, request)
    except _RefusedError as error:
        return REFUSED, str(error).encode()
    except Exception as error:  # whatever DuckDB and Arrow raise
        text = _one_line(error)
        if isinstance(error, MemoryError) or "Out of Memory" in text:
            return NO_MEMORY, b""
        return REFUSED, f"the query cannot be answered: {text}".encode(errors="replace")
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))


def _table(connection: Any, request: QueryRequest) -> Any:
    """Return the rows of an answer as an Arrow stream."""
    import pyarrow as pa

    found = connection.sql(request["sql"])
    if found is None or not found.columns:
        raise _RefusedError("this statement returns no table: write a SELECT")
    most = request["rows"]
    most_bytes = request["answer_mb"] and request["answer_mb"] << 20
    size, batches, rows = 0, [], 0
    reader = found.fetch_arrow_reader(_BATCH_ROWS)
    for batch in reader:
        kept = batch if most is None else batch[: most + 1 - rows]
        batches.append(kept)
        rows += len(kept)
        size += kept.nbytes
        if most_bytes and size > most_bytes:
            raise _RefusedError(
                f"the answer is larger than {request['answer_mb']} MB: select fewer rows or columns"
            )
        if most is not None and rows > most:
            break
    table = _with_plain_numbers(pa.Table.from_batches(batches, reader.schema))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return memoryview(sink.getvalue())


def _with_plain_numbers(table: Any) -> Any:
    """Return a table whose decimal columns are floating-point numbers, as pandas has them."""
    import pyarrow as pa

    for place, field in enumerate(table.schema):
        if pa.types.is_decimal(field.type):
            numbers = table.column(place).cast(pa.float64())
            table = table.set_column(place, pa.field(field.name, pa.float64()), numbers)
    return table


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


if __name__ == "__main__":
    serve(sys.argv[1:])
