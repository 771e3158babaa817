"""SQL over a trace, by DuckDB in a process of its own."""

from __future__ import annotations

import importlib.util
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import pandas as pd

from hvdtune.errors import HvdtuneError, UsageError
from hvdtune.timeline.analysis.metrics.breakdown import apart_from_computing
from hvdtune.timeline.analysis.query_process import QueryLimits, QueryProcess
from hvdtune.timeline.analysis.query_tables import TABLES
from hvdtune.timeline.analysis.steps import steps_of

if TYPE_CHECKING:
    from hvdtune.timeline.model.trace import Trace

NEEDS_DUCKDB: Final = (
    "queries need DuckDB, which is not installed here: pip install 'hvdtune[query]'"
)

# DuckDB describes columns of a table as those of a database.
_OF_COLUMNS: Final = ["column_name", "column_type", "null", "key", "default", "extra"]
_DEFAULT: Final = QueryLimits()


def can_query() -> bool:
    """Whether DuckDB is installed."""
    return importlib.util.find_spec("duckdb") is not None


def query(trace: Trace, sql: str, limits: QueryLimits = _DEFAULT) -> pd.DataFrame:
    """Return the rows of a query over three tables: `slices`, `events` and `steps`.

    `slices` and `events` are those of `Trace`, `steps` is `steps.steps_of` (ms; NULL: not known)
    without time off the processor in computing. A query can read nothing else: no file and no
    address.

    Raises:
        UsageError: DuckDB refuses the query, or it needs more memory than its limit.
        HvdtuneError: DuckDB is not installed, or the query takes longer than its limit.
    """
    queries = Queries()
    try:
        return queries.ask(trace, sql, limits)
    finally:
        queries.end()


class Queries:
    """Queries like those of `query`, whose process is kept for the next one over the same trace.

    Queries of several threads run one after the other.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: QueryProcess | None = None
        self._trace: Callable[[], object] = lambda: None

    def ask(self, trace: Trace, sql: str, limits: QueryLimits) -> pd.DataFrame:
        """Return the rows of a query; see `query`."""
        if not sql.strip():
            raise UsageError("the query is empty: write a SELECT")
        if not can_query():
            raise HvdtuneError(NEEDS_DUCKDB)
        with self._lock:
            try:
                answer = self._process_for(trace).ask(sql, limits)
            except UsageError as error:
                raise UsageError(_with_tables(str(error))) from error
        found: pd.DataFrame = answer.to_pandas(date_as_object=False)
        return found[_OF_COLUMNS[:2]] if list(found.columns) == _OF_COLUMNS else found

    def end(self) -> None:
        """End the process, which otherwise ends some minutes after its last query."""
        with self._lock:
            self._end()

    def _process_for(self, trace: Trace) -> QueryProcess:
        process = self._process
        if process is None or self._trace() is not trace or not process.is_usable:
            self._end()
            process = self._process = QueryProcess(_tables_of(trace))
            self._trace = weakref.ref(trace)
        return process

    def _end(self) -> None:
        if self._process is not None:
            self._process.end()
            self._process = None


def without_rows(found: pd.DataFrame) -> str:
    """Return the sentence for an answer without rows."""
    return f"The answer has no rows. Its columns are {', '.join(map(str, found.columns))}."


def _tables_of(trace: Trace) -> dict[str, pd.DataFrame]:
    frames = (trace.slices, trace.events, apart_from_computing(steps_of(trace)))
    return dict(zip(TABLES, frames, strict=True))


def _with_tables(text: str) -> str:
    if "Table with name" not in text:
        return text
    # What DuckDB offers instead are tables of its own.
    return f"{text.partition(' Did you mean')[0]} The tables are {', '.join(TABLES)}."
