"""SQL over a trace, by DuckDB."""

import pandas as pd

from hvdtune.errors import HvdtuneError, UsageError
from hvdtune.timeline.analysis.metrics import breakdown
from hvdtune.timeline.model.trace import Trace


def query(trace: Trace, sql: str) -> pd.DataFrame:
    """The rows of a query over three tables: `slices`, `events` and `steps`.

    `slices` and `events` are those of `Trace`, `steps` is `breakdown.steady_steps` (ms). A query
    can read nothing else: no file and no address.

    Raises:
        UsageError: DuckDB does not take the query.
        HvdtuneError: DuckDB is not installed.
    """
    try:
        import duckdb
    except ImportError as error:
        raise HvdtuneError(
            "queries need DuckDB, which is not installed here: pip install 'hvdtune[query]'"
        ) from error
    with duckdb.connect(config={"enable_external_access": "false"}) as connection:
        tables = {
            "slices": trace.slices,
            "events": trace.events,
            "steps": breakdown.steady_steps(trace.events),
        }
        for name, table in tables.items():
            connection.register(name, table)
        try:
            answer = connection.execute(sql)
            found: pd.DataFrame | None = None if answer.description is None else answer.df()
        except (duckdb.Error, AttributeError) as error:
            raise UsageError(f"the query cannot be answered: {_one_line(error)}") from error
    if found is None:
        raise UsageError("the query has no rows to answer with: write a SELECT")
    return found


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
