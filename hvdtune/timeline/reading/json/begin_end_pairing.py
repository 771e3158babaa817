"""Slices whose begin and end are events of their own."""

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hvdtune.timeline.reading.json.batch import NUMBERS
from hvdtune.timeline.reading.json.damage import DamageReport, Reason
from hvdtune.timeline.reading.json.text_spans import pair

# One row as it is stored; texts and tracks are numbers. That nothing is null saves Parquet a third
# of the writing: it would keep for every value whether there is one.
SCHEMA: Final = pa.schema(
    pa.field(name, kind, nullable=False)
    for name, kind in (
        ("track", pa.int32()),
        ("phase", pa.uint8()),
        ("name", pa.int32()),
        ("category", pa.int32()),
        ("id", pa.int32()),
        ("begin_ns", pa.int64()),
        ("end_ns", pa.int64()),
        ("open", pa.bool_()),
        *((name, pa.int64()) for name in NUMBERS),
        ("args", pa.string()),
    )
)

# Pairing goes on when so many events wait, or half as many as were left over.
_MIN_WAITING = 1 << 16

Columns = dict[str, NDArray[Any]]


class Halves:
    """Begins and ends of one sort; gives slices, and keeps what has found no other half yet.

    A file in the order of time needs little memory. In another order it is right, too, as long as
    what lies within a slice does not come in the file long after that slice's end.
    """

    def __init__(self, begin: str, end: str, report: DamageReport) -> None:
        self._begin, self._end = begin, end
        self._report = report
        self._left: pa.Table = SCHEMA.empty_table()
        self._waiting: list[pa.RecordBatch] = []
        self._rows = 0

    def add(self, rows: pa.RecordBatch, last_ns: NDArray[np.int64]) -> list[pa.RecordBatch]:
        """The slices that are whole with these events.

        Args:
            last_ns: the last time of each track so far.
        """
        self._waiting.append(rows)
        self._rows += len(rows)
        if self._rows < max(_MIN_WAITING, len(self._left) // 2):
            return []
        return self._pair(last_ns, final=False)

    def finish(self, last_ns: NDArray[np.int64]) -> list[pa.RecordBatch]:
        """The rest: what has no end is open until the last time of its track."""
        if self._rows + len(self._left) == 0:
            return []
        return self._pair(last_ns, final=True)

    def _pair(self, last_ns: NDArray[np.int64], *, final: bool) -> list[pa.RecordBatch]:
        parts = pa.Table.from_batches(self._waiting, SCHEMA)
        table = pa.concat_tables([self._left, parts]).combine_chunks()
        self._waiting, self._rows = [], 0
        columns = {
            name: table[name].to_numpy() for name in SCHEMA.names if name not in ("args", "open")
        }
        is_begin = columns["phase"] == ord(self._begin)
        other = pair(self._nests_in(columns), columns["begin_ns"], is_begin)
        if not final:
            self._left = table.filter(pa.array(other < 0)).combine_chunks()
            begins = np.flatnonzero(is_begin & (other >= 0))
        else:
            self._left = SCHEMA.empty_table()
            begins = np.flatnonzero(is_begin)
            lost = int((~is_begin & (other < 0)).sum())
            reason = Reason(
                f"{self._end!r} event has no begin event",
                f"{self._end!r} events have no begin event",
            )
            self._report.left_out(self._end, reason, lost)
        slices = self._slices(table, columns, begins, other[begins], last_ns)
        return list(slices.to_batches())

    def _slices(
        self,
        table: pa.Table,
        columns: Columns,
        begins: NDArray[np.intp],
        ends: NDArray[np.intp],
        last_ns: NDArray[np.int64],
    ) -> pa.Table:
        closed = ends >= 0
        self._report.shown[self._begin] += len(begins)
        self._report.shown[self._end] += int(closed.sum())
        names = columns["name"]
        misnamed = closed & (names[ends] != 0) & (names[ends] != names[begins])
        other = Reason(
            f"{self._end!r} event has the name of another slice",
            f"{self._end!r} events have the name of another slice",
        )
        self._report.note(other, int(misnamed.sum()))
        at, last = columns["begin_ns"], last_ns[columns["track"][begins]]
        slices: Columns = {name: values[begins] for name, values in columns.items()}
        slices["end_ns"] = np.where(closed, at[ends], np.maximum(last, at[begins]))
        slices["open"] = ~closed
        if self._begin == "B":
            slices["phase"] = np.full(len(begins), ord("X"), np.uint8)
        for name in NUMBERS:
            said = slices[name]
            slices[name] = np.where(closed & (said == -1), columns[name][ends], said)
        args = _joined_args(table["args"].combine_chunks(), begins, ends)
        arrays = [args if name == "args" else pa.array(slices[name]) for name in SCHEMA.names]
        return pa.table(arrays, schema=SCHEMA)

    def _nests_in(self, columns: Columns) -> NDArray[np.int64]:
        if self._begin == "B":
            return columns["track"].astype(np.int64)
        # By category and id, whichever threads they are on.
        return columns["category"].astype(np.int64) << 32 | columns["id"]


def _joined_args(args: pa.Array, begins: NDArray[np.intp], ends: NDArray[np.intp]) -> pa.Array:
    first = args.take(pa.array(begins))
    second = pc.fill_null(args.take(pa.array(ends, mask=ends < 0)), "")
    chosen = pc.if_else(pc.equal(first, ""), second, first)
    both = pc.and_(
        pc.and_(pc.not_equal(first, ""), pc.not_equal(second, "")), pc.not_equal(first, second)
    )
    rows = np.flatnonzero(both.to_numpy(zero_copy_only=False))
    if len(rows) == 0:
        return chosen
    texts = chosen.to_pylist()
    for row in rows.tolist():
        texts[row] = _merged(first[row].as_py(), second[row].as_py())
    return pa.array(texts, pa.string())


def _merged(first: str, second: str) -> str:
    """Join the arguments; those of the end come last and prevail, as in a viewer."""
    if first[:1] != "{" or second[:1] != "{":
        return second
    inside = [text[1:-1].strip() for text in (first, second)]
    return "{" + ",".join(text for text in inside if text) + "}"
