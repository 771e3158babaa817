"""A database of another program, of which rows are read and nothing is run or changed."""

import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from hvdtune.errors import TraceFormatError
from hvdtune.timeline.reading.json.damage import DamageReport, Reason

MAGIC: Final = b"SQLite format 3\0"
# SQLite may name damaged texts in its errors, which Python then cannot decode.
_DAMAGED: Final = (sqlite3.DatabaseError, UnicodeError)
_ROWS_PER_BATCH: Final = 1 << 15
_MAX_TEXT: Final = 1 << 16  # characters; rows of a damaged file may share the pages of a long one
_NAME: Final = re.compile(r"\w{1,200}", re.ASCII)


class ProfileDatabase:
    """Tables and their rows; what cannot be read of them is told in a report.

    Attributes:
        columns: of each table, by its name; views and virtual tables, which run code of the
            file's or of a library's, are left out.
    """

    def __init__(self, connection: sqlite3.Connection, report: DamageReport) -> None:
        self._connection = connection
        self._report = report
        self.columns: dict[str, list[str]] = {}
        tables = connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0"
        )
        for (name,) in tables.fetchall():
            if isinstance(name, str) and _NAME.fullmatch(name):
                told = connection.execute(f'PRAGMA table_info("{name}")')
                self.columns[name] = [str(row[1]) for row in told]

    def integer(self, table: str, *columns: str, default: int = -1) -> str:
        """An expression for the first of these columns that the table has, as a whole number."""
        for column in columns:
            if column in self.columns[table]:
                return f'IFNULL(CAST("{column}" AS INTEGER), {default})'
        return str(default)

    def text(self, table: str, column: str) -> str:
        """An expression for a column as text, '' where there is none."""
        known = column in self.columns[table]
        if not known:
            return "''"
        return f"IFNULL(SUBSTR(CAST(\"{column}\" AS TEXT), 1, {_MAX_TEXT}), '')"

    def batches(self, table: str, expressions: Sequence[str]) -> Iterator[list[tuple[Any, ...]]]:
        """Rows of a table in batches; behind a damaged place reading goes on from the end."""
        if table not in self.columns:
            return
        said = ", ".join(("rowid", *expressions))
        last, failure = -(2**63), None
        try:
            for rows in self._fetched(f'SELECT {said} FROM "{table}" ORDER BY rowid'):
                last = rows[-1][0]
                yield [row[1:] for row in rows]
        except _DAMAGED as error:
            failure = error
        if failure is None:
            return
        first = None
        try:
            for rows in self._fetched(f'SELECT {said} FROM "{table}" ORDER BY rowid DESC'):
                own = [row for row in rows if row[0] > last]
                if own:
                    first = own[-1][0]
                    yield [row[1:] for row in own]
                if len(own) < len(rows):
                    break
        except _DAMAGED:
            pass  # the place that is damaged, from its other side
        begin = f"row {max(last, 0) + 1}"
        until = "the end" if first is None else f"row {first - 1}"
        text = f"table {table} cannot be read from {begin} to {until} ({failure})"
        self._report.problem(text)

    def _fetched(self, query: str) -> Iterator[list[tuple[Any, ...]]]:
        cursor = self._connection.execute(query)
        rows: list[tuple[Any, ...]] = []
        try:
            for row in cursor:
                rows.append(row)
                if len(rows) == _ROWS_PER_BATCH:
                    yield rows
                    rows = []
        except _DAMAGED:
            if rows:
                yield rows
            raise
        if rows:
            yield rows

    def rows(self, table: str, expressions: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        """The rows of a small table."""
        for batch in self.batches(table, expressions):
            yield from batch

    def count(self, table: str) -> int:
        """How many rows a table has; 0 where it cannot be read."""
        try:
            (count,) = self._connection.execute(f'SELECT COUNT(*) FROM "{table}"').fetchone()
        except _DAMAGED as error:
            self._report.problem(f"table {table} cannot be read ({error})")
            return 0
        return int(count)


class NumberedTexts:
    """A table of numbered texts, looked up as they are needed."""

    def __init__(self, database: ProfileDatabase, table: str, key: str, value: str) -> None:
        self._known: dict[int, str] = {}
        self._database, self._table = database, table
        self._columns = (key, value)
        self._is_read = False

    def of(self, number: int) -> str:
        """The text of a number, or the number where there is none."""
        if not self._is_read:
            self._is_read = True
            if {*self._columns} <= {*self._database.columns.get(self._table, [])}:
                key, value = self._columns
                expressions = (
                    self._database.integer(self._table, key),
                    self._database.text(self._table, value),
                )
                self._known.update(self._database.rows(self._table, expressions))
        return self._known.get(number, f"#{number}")


@contextmanager
def opened_database(path: Path, report: DamageReport) -> Iterator[ProfileDatabase]:
    """A database for reading.

    Raises:
        TraceFormatError: not even its list of tables can be read.
    """
    # Immutable: neither a journal beside it is replayed nor a lock is taken.
    uri = f"file:{quote(str(path.absolute()))}?mode=ro&immutable=1"
    connection = sqlite3.connect(uri, uri=True)
    try:
        connection.text_factory = lambda data: data.decode(errors="replace")
        connection.execute("PRAGMA trusted_schema = OFF")
        try:
            database = ProfileDatabase(connection, report)
        except _DAMAGED as error:
            text = f"{path}: no SQLite database, or damaged: its tables cannot be listed ({error})"
            raise TraceFormatError(text, str(path), 0) from error
        yield database
    finally:
        connection.close()


def not_shown(table: str) -> Reason:
    """What is said of the rows of a table that a reader does not show."""
    return Reason(f"row of table {table} is not shown", f"rows of table {table} are not shown")
