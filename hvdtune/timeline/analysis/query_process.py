"""Starts, asks and ends the process that answers queries, see `query_child`."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Final

import pandas as pd
import pyarrow as pa

from hvdtune.errors import HvdtuneError, UsageError
from hvdtune.timeline.analysis import query_child

_START_S: Final = 300  # to start the process and hand the tables over
_END_S: Final = 5  # a killed process that waits for a disk is left behind
_CHUNK_ROWS: Final = 1 << 16
# Modules come from where this process finds them, never from the current folder.
_START: Final = (
    "import sys; count = int(sys.argv[1]); sys.path[:] = sys.argv[2 : 2 + count]; "
    "from hvdtune.timeline.analysis.query_child import serve; serve(sys.argv[2 + count :])"
)


@dataclass(frozen=True)
class QueryLimits:
    """Limits of a query.

    Attributes:
        seconds: until the process that answers is killed.
        rows: maximum number of rows; one more is returned where there are more. None: unlimited.
        memory_mb: maximum memory besides that of the tables. None: unlimited.
        answer_mb: maximum size of the answer. None: unlimited.
        more_seconds, more_memory: end the message of a query that reached the limit.
    """

    seconds: float = 30
    rows: int | None = None
    memory_mb: int | None = 4_000
    answer_mb: int | None = None
    more_seconds: str = ""
    more_memory: str = ""


class QueryProcess:
    """A process that has the tables of a trace; `end` it."""

    def __init__(self, tables: Mapping[str, pd.DataFrame]) -> None:
        self._owner = os.getpid()
        paths = [path for path in sys.path if path]
        command = [sys.executable, "-c", _START, str(len(paths)), *paths, *tables]
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
        except OSError as error:
            raise HvdtuneError(f"cannot start {sys.executable}: {error.strerror}") from error
        try:
            with self._killed_after(_START_S) as is_late:
                for table in tables.values():
                    self._hand_over(table)
                kind, payload = self._frame()
        except (OSError, EOFError) as error:
            late = f" within {_START_S} s" if is_late.is_set() else ""
            text = f"the process that answers queries did not start{late} ({error})"
            raise HvdtuneError(text) from error
        if kind != query_child.READY:
            raise HvdtuneError(f"no query can be answered: {payload.decode(errors='replace')}")

    @property
    def is_usable(self) -> bool:
        """Whether it runs, and is a child of this process."""
        return self._owner == os.getpid() and self._process.poll() is None

    def ask(self, sql: str, limits: QueryLimits) -> pa.Table:
        """Return the answer to a query.

        Raises:
            UsageError: DuckDB refuses the query, or it needs more memory than its limit.
            HvdtuneError: the query takes longer than its limit; the process is ended.
        """
        request: query_child.QueryRequest = {
            "sql": sql,
            "seconds": limits.seconds,
            "rows": limits.rows,
            "memory_mb": limits.memory_mb,
            "answer_mb": limits.answer_mb,
        }
        try:
            with self._killed_after(limits.seconds) as is_late:
                self._input.write(json.dumps(request).encode() + b"\n")
                self._input.flush()
                kind, payload = self._frame()
        except (OSError, EOFError) as error:
            if is_late.is_set():
                text = f"the query took more than {limits.seconds:g} s{limits.more_seconds}"
                raise HvdtuneError(text) from error
            raise self._ended(limits) from error
        if kind == query_child.NO_MEMORY:
            raise _needs_memory(limits)
        if kind != query_child.TABLE:
            raise UsageError(payload.decode(errors="replace"))
        return pa.ipc.open_stream(payload).read_all()

    def end(self) -> None:
        """Kill the process."""
        if self._owner != os.getpid():
            return
        self._process.kill()
        for pipe in (self._input, self._output):
            with contextlib.suppress(OSError):  # input that was not written yet
                pipe.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_S)

    @property
    def _input(self) -> IO[bytes]:
        assert self._process.stdin is not None
        return self._process.stdin

    @property
    def _output(self) -> IO[bytes]:
        assert self._process.stdout is not None
        return self._process.stdout

    @contextmanager
    def _killed_after(self, seconds: float) -> Iterator[threading.Event]:
        """Kill the process when the time is over, which sets the event, or on any exception."""
        is_late = threading.Event()

        def end() -> None:
            is_late.set()
            self._process.kill()

        timer = threading.Timer(min(seconds, threading.TIMEOUT_MAX), end)
        timer.daemon = True
        timer.start()
        try:
            yield is_late
        except BaseException:  # an interrupt, too: the answer would be taken for that of the next
            self.end()
            raise
        finally:
            timer.cancel()

    def _hand_over(self, frame: pd.DataFrame) -> None:
        table = pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(None)
        with pa.ipc.new_stream(self._input, table.schema) as stream:
            stream.write_table(table, max_chunksize=_CHUNK_ROWS)
        self._input.flush()

    def _frame(self) -> tuple[bytes, bytes]:
        kind, is_last, size = query_child.FRAME.unpack(self._read(query_child.FRAME.size))
        payload = self._read(size)
        if is_last:
            self.end()
        return kind, payload

    def _read(self, size: int) -> bytes:
        data = self._output.read(size)
        if len(data) < size:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_END_S)
            raise EOFError("it ended")
        return data

    def _ended(self, limits: QueryLimits) -> HvdtuneError:
        code = self._process.returncode
        if code == -signal.SIGKILL:  # by the system, for want of memory
            return _needs_memory(limits)
        how = f"exit code {code}" if code is None or code >= 0 else signal.Signals(-code).name
        return HvdtuneError(f"DuckDB failed ({how}): change the query")


def _needs_memory(limits: QueryLimits) -> UsageError:
    most = "" if limits.memory_mb is None else f" than {limits.memory_mb:,} MB"
    return UsageError(f"the query needs more memory{most}{limits.more_memory}")
