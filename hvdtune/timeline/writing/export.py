"""Writes a trace for chrome://tracing and Perfetto; it reads back unchanged.

The file is one JSON object. Everything but the events comes first, then one event per line, so
that a file cut short still says what it is and shows all its whole lines.
"""

import contextlib
import gzip
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
from numpy.typing import NDArray

from hvdtune.own_files import replacement
from hvdtune.timeline.model.event_labels import (
    Columns,
    args_template,
    event_columns,
    head_of,
    json_names,
    json_text,
    json_texts,
    rank_title,
    span_titles,
)
from hvdtune.timeline.model.schema import KIND_NAMES, KINDS, Kind
from hvdtune.timeline.model.trace import Trace
from hvdtune.timeline.model.viewer_rows import ViewerRows, assign_rows

EVENTS_PER_CHUNK = 1 << 16


def write_chrome(trace: Trace, path: Path | str) -> None:
    """Write `trace` as Chrome trace JSON, compressed when the path ends in ".gz".

    One process per rank; thread 1 is steps, 2 communication, 3 clock measurements, from 16 on one
    per tensor. Times are in microseconds with three decimals, which is exact.
    """
    with replacing(Path(path)) as file:
        _write(trace, file)


@contextlib.contextmanager
def replacing(path: Path, *, plain: bool = False) -> Iterator[IO[bytes]]:
    """A file that takes the place of `path` when it is whole; packed if that ends in ".gz".

    Args:
        plain: it is never packed.
    """
    with replacement(path) as part, open(part, "wb") as file:
        if path.suffix == ".gz" and not plain:
            with gzip.GzipFile("", "wb", compresslevel=5, fileobj=file, mtime=0) as packed:
                yield cast("IO[bytes]", packed)
        else:
            yield file


def _write(trace: Trace, file: IO[bytes]) -> None:
    rows = assign_rows(trace)
    head = json_text(head_of(trace, rows))
    file.write(f'{{"displayTimeUnit":"ms","otherData":{head},\n'.encode())
    file.write(b'"traceEvents":[\n')
    file.write(",\n".join(_titles(trace, rows)).encode())
    columns = event_columns(trace, rows)
    texts = {"name": json_names(trace), "title": json_texts(span_titles(trace))}
    for begin in range(0, len(trace.events), EVENTS_PER_CHUNK):
        chunk = {key: values[begin : begin + EVENTS_PER_CHUNK] for key, values in columns.items()}
        lines = np.empty(len(chunk["kind"]), dtype=object)
        for where, text in _lines(chunk, texts):
            lines[where] = text
        file.write((",\n" + ",\n".join(lines)).encode())
    file.write(b"\n]}\n")


def _titles(trace: Trace, rows: ViewerRows) -> Iterator[str]:
    events = trace.events
    ranks = events["rank"].to_numpy()
    known = trace.meta.get("ranks", {})
    for rank in sorted({int(rank) for rank in np.unique(ranks)} | set(known)):
        host = known.get(rank, {}).get("host")
        yield _title("process_name", rank, 0, {"name": rank_title(rank, host)})
        yield _title("process_sort_index", rank, 0, {"sort_index": rank})
        for row in np.unique(rows.row[ranks == rank]).tolist():
            yield _title("thread_name", rank, row, {"name": rows.titles[row]})
            yield _title("thread_sort_index", rank, row, {"sort_index": row})


def _title(what: str, rank: int, row: int, args: dict[str, Any]) -> str:
    return json_text({"ph": "M", "name": what, "pid": rank, "tid": row, "args": args})


def _lines(
    chunk: Columns, texts: Mapping[str, NDArray[Any]]
) -> Iterator[tuple[NDArray[np.intp], list[str]]]:
    for code in np.unique(chunk["kind"]).tolist():
        kind = KINDS[KIND_NAMES[code]]
        where = np.flatnonzero(chunk["kind"] == code)
        template, keys = _template(kind)
        values: list[list[Any]] = []
        for key in keys:
            column = chunk[key][where]
            values.append((texts[key][column] if key in texts else column).tolist())
        yield where, [template % row for row in zip(*values, strict=True)]


_PLACE = '"pid":%d,"tid":%d,"ts":%d.%03d'
_PLACE_KEYS = ("rank", "row", "us", "us_decimals")


def _template(kind: Kind) -> tuple[str, tuple[str, ...]]:
    """A %-format for events of a kind, and the columns that fill it in."""
    args, keys = args_template(kind)
    if kind.name == "CYCLE":
        # Viewers draw every number in a counter's args, and its own number is no counter.
        head = f'{{"ph":"C","name":"cycle",{_PLACE},"cycle":%d'
        return f'{head},"args":{args}}}', (*_PLACE_KEYS, "seq", *keys)
    if kind.name == "NEGOTIATE":
        head = f'{{"ph":"X","cat":"tensor","name":"%s",{_PLACE},"dur":%d.%03d'
        keys = ("announced", *_PLACE_KEYS, "dur", "dur_decimals", *keys)
        return f'{head},"args":{args}}}', keys
    if kind.name == "SPAN":
        head = f'{{"ph":"X","cat":"script","name":%s,{_PLACE},"dur":%d.%03d'
        return f'{head},"args":{args}}}', ("title", *_PLACE_KEYS, "dur", "dur_decimals", *keys)
    start = f'"cat":"{kind.row}","name":"{kind.name}",{_PLACE}'
    if kind.span:
        head = f'{{"ph":"X",{start},"dur":%d.%03d'
        return f'{head},"args":{args}}}', (*_PLACE_KEYS, "dur", "dur_decimals", *keys)
    scope = "p" if kind.row == "process" else "t"
    return f'{{"ph":"i","s":"{scope}",{start},"args":{args}}}', (*_PLACE_KEYS, *keys)
