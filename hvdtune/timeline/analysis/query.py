"""SQL over a trace, by DuckDB."""

from __future__ import annotations

import importlib.util
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pandas as pd

from hvdtune.errors import HvdtuneError, UsageError
from hvdtune.timeline.analysis.metrics.breakdown import apart_from_computing
from hvdtune.timeline.analysis.query_tables import TABLES
from hvdtune.timeline.analysis.steps import steps_of

if TYPE_CHECKING:
    from hvdtune.timeline.model.trace import Trace

NEEDS_DUCKDB: Final = (
    "queries need DuckDB, which is not installed here: pip install 'hvdtune[query]'"
)


# What would change tables; those of a trace only answer.
_CHANGES: Final = frozenset(("INSERT", "UPDATE", "DELETE", "DROP", "ALTER"))
# DuckDB says of each column of a table what is known of one in a database, too.
_OF_COLUMNS: Final = ["column_name", "column_type", "null", "key", "default", "extra"]


@dataclass(frozen=True)
class QueryLimits:
    """What a query may take; one row more than `rows` is answered where there are more.

    None: as many rows as there are, as much memory as DuckDB takes by itself.
    `how_to_allow_more` ends the message of a query that took longer than `seconds`.
    """

    seconds: float = 30
    rows: int | None = None
    memory_mb: int | None = None
    how_to_allow_more: str = ""


def can_query() -> bool:
    """Whether DuckDB is installed."""
    return importlib.util.find_spec("duckdb") is not None


def query(trace: Trace, sql: str, limits: QueryLimits = QueryLimits()) -> pd.DataFrame:
    """The rows of a query over three tables: `slices`, `events` and `steps`.

    `slices` and `events` are those of `Trace`, `steps` is `steps.steps_of` (ms; NULL: not known)
    without time off the processor in computing. A query can read nothing else: no file and no
    address.

    Raises:
        UsageError: DuckDB does not take the query, or it needs more memory than it may have.
        HvdtuneError: DuckDB is not installed, or the query takes too long.
    """
    if not sql.strip():
        raise UsageError("the query is empty: write a SELECT")
    try:
        import duckdb
    except ImportError as error:
        raise HvdtuneError(NEEDS_DUCKDB) from error
    config: dict[str, Any] = {"enable_external_access": "false", "lock_configuration": "true"}
    if limits.memory_mb is not None:
        config |= {"memory_limit": f"{limits.memory_mb}MB", "temp_directory": ""}
    with duckdb.connect(config=config) as connection:
        tables = (trace.slices, trace.events, apart_from_computing(steps_of(trace)))
        for name, table in zip(TABLES, tables, strict=True):
            connection.register(name, table)
        try:
            if any(each.type.name in _CHANGES for each in duckdb.extract_statements(sql)):
                raise UsageError("the tables of a trace cannot be changed: write a SELECT")
            found = _answer(connection, sql, limits)
        except duckdb.InterruptException as error:
            raise HvdtuneError(
                f"the query took more than {limits.seconds:g} s{limits.how_to_allow_more}"
            ) from error
        except (duckdb.Error, AttributeError) as error:
            raise UsageError(f"the query cannot be answered: {_one_line(error)}") from error
    if found is None:
        raise UsageError("the query has no rows to answer with: write a SELECT")
    return found[_OF_COLUMNS[:2]] if list(found.columns) == _OF_COLUMNS else found


def without_rows(found: pd.DataFrame) -> str:
    """What to say of an answer that has none."""
    return f"The answer has no rows. Its columns are {', '.join(map(str, found.columns))}."


def _answer(connection: Any, sql: str, limits: QueryLimits) -> pd.DataFrame | None:
    end = threading.Timer(limits.seconds, connection.interrupt)
    end.start()
    try:
        answer = connection.execute(sql)
        if answer.description is None:
            return None
        if limits.rows is None:
            found: pd.DataFrame = answer.df()
            return found
        columns = [column[0] for column in answer.description]
        return pd.DataFrame(answer.fetchmany(limits.rows + 1), columns=columns)
    finally:
        end.cancel()
        end.join()


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split())
    if "Table with name" not in text:
        return text
    # What DuckDB offers instead are tables of its own.
    return f"{text.partition(' Did you mean')[0]} The tables are {', '.join(TABLES)}."
