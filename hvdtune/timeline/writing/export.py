"""Writes a trace for chrome://tracing and Perfetto; `readers.chrome` reads it back unchanged.

The file is one JSON object. Everything but the events comes first, then one event per line, so
that a file cut short still says what it is and shows all its whole lines.
"""

import contextlib
import gzip
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from hvdtune.timeline.analysis.lateness import COLLECTIVE_KEY, lateness
from hvdtune.timeline.model.schema import (
    COLLECTIVES,
    KIND_NAMES,
    KINDS,
    PROCESS_SET_UNIT,
    Kind,
    Trace,
)
from hvdtune.timeline.writing.viewer_rows import Rows, assign_rows

FORMAT = 1
EVENTS_PER_CHUNK = 1 << 16
_NEGOTIATE = KIND_NAMES.index("NEGOTIATE")

Columns = dict[str, NDArray[Any]]


def write_chrome(trace: Trace, path: Path | str) -> None:
    """Write `trace` as Chrome trace JSON, compressed when the path ends in ".gz".

    One process per rank; thread 1 is steps, 2 communication, 3 clock measurements, from 16 on one
    per tensor. Times are in microseconds with three decimals, which is exact.
    """
    with replacing(Path(path)) as file:
        _write(trace, file)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A file that takes the place of `path` when it is whole; packed if that ends in ".gz"."""
    partial = path.with_name(path.name + ".partial")
    try:
        with open(partial, "wb") as file:
            if path.suffix == ".gz":
                with gzip.GzipFile("", "wb", compresslevel=5, fileobj=file, mtime=0) as packed:
                    yield cast("IO[bytes]", packed)
            else:
                yield file
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def _write(trace: Trace, file: IO[bytes]) -> None:
    rows = assign_rows(trace)
    head = _json(head_of(trace, rows))
    file.write(f'{{"displayTimeUnit":"ms","otherData":{head},\n'.encode())
    file.write(b'"traceEvents":[\n')
    file.write(",\n".join(_titles(trace, rows)).encode())
    columns = event_columns(trace, rows)
    texts = {"name": json_names(trace), "title": _json_texts(span_titles(trace))}
    for begin in range(0, len(trace.events), EVENTS_PER_CHUNK):
        chunk = {key: values[begin : begin + EVENTS_PER_CHUNK] for key, values in columns.items()}
        lines = np.empty(len(chunk["kind"]), dtype=object)
        for where, text in _lines(chunk, texts):
            lines[where] = text
        file.write((",\n" + ",\n".join(lines)).encode())
    file.write(b"\n]}\n")


def head_of(trace: Trace, rows: Rows) -> dict[str, Any]:
    """What an export says of a trace beside its events."""
    return {
        "hvdtune": FORMAT,
        "events": len(trace.events),
        "meta": trace.meta,
        "warnings": trace.warnings,
        "tensors": rows.tensors,
    }


def _json(value: object) -> str:
    # Perfetto's reader loses its place at a backslash before the quote that ends a string.
    return msgspec.json.encode(value).decode().replace(r"\\", r"\u005c")


def _titles(trace: Trace, rows: Rows) -> Iterator[str]:
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


def rank_title(rank: int, host: str | None) -> str:
    """What the process of a rank is called."""
    return f"rank {rank} ({host})" if host else f"rank {rank}"


def _title(what: str, rank: int, row: int, args: dict[str, Any]) -> str:
    return _json({"ph": "M", "name": what, "pid": rank, "tid": row, "args": args})


def json_names(trace: Trace) -> NDArray[Any]:
    """JSON text of each category of the events' names."""
    return _json_texts(trace.events["name"].cat.categories)


def span_titles(trace: Trace) -> list[str]:
    """What a SPAN of each category of the events' names is called: what it is, if that is clear."""
    names = trace.events["name"].cat.categories
    return ["SPAN" if text == "" or text in KINDS else text for text in names]


def _json_texts(texts: Iterable[str]) -> NDArray[Any]:
    return np.array([_json(text) for text in texts], dtype=object)


def event_columns(trace: Trace, rows: Rows) -> Columns:
    """What an event's line is made of, a column each; names and kinds as numbers."""
    events = trace.events
    columns: Columns = {key: events[key].to_numpy() for key in ("rank", "seq", "bucket", "arg")}
    columns["kind"] = events["kind"].cat.codes.to_numpy()
    columns["name"] = columns["title"] = events["name"].cat.codes.to_numpy()
    columns["row"] = rows.row
    columns["us"], columns["us_decimals"] = np.divmod(events["begin_ns"].to_numpy(), 1000)
    duration = events["end_ns"].to_numpy() - events["begin_ns"].to_numpy()
    columns["dur"], columns["dur_decimals"] = np.divmod(duration, 1000)
    columns["announced"] = _announced_operations(columns)
    columns["process_set"], columns["late"] = _negotiation_details(trace)
    columns["arg"] = columns["arg"].copy()
    columns["arg"][columns["kind"] == _NEGOTIATE] %= PROCESS_SET_UNIT
    return columns


def _announced_operations(columns: Columns) -> NDArray[Any]:
    """For each negotiation, its name with the operation it was for."""
    kind = columns["kind"]
    names = np.full(len(kind), "NEGOTIATE", dtype=object)
    negotiations = np.flatnonzero(kind == _NEGOTIATE)
    collectives = np.isin(kind, [KIND_NAMES.index(name) for name in COLLECTIVES])
    matches = _same_collective(columns, negotiations, np.flatnonzero(collectives))
    operations = np.array([f"NEGOTIATE_{name}" for name in KIND_NAMES], dtype=object)
    names[negotiations[matches >= 0]] = operations[kind[matches[matches >= 0]]]
    return names


def _negotiation_details(trace: Trace) -> tuple[NDArray[Any], NDArray[Any]]:
    """For each negotiation, its process set and who was late, as JSON; "" where there is none."""
    process_set, late = (np.full(len(trace.events), "", dtype=object) for _ in range(2))
    where = np.flatnonzero(trace.events["kind"].cat.codes.to_numpy() == _NEGOTIATE)
    announced = trace.events.iloc[where][["name", "seq", "arg"]]
    announced = announced.assign(process_set=announced["arg"] // PROCESS_SET_UNIT)
    process_set[where] = [
        f',"process_set":{number}' if number else "" for number in announced["process_set"].tolist()
    ]
    found = announced.merge(lateness(trace), on=list(COLLECTIVE_KEY), how="left")
    known = found["late_ns"].notna()
    ranks, late_ns = (found.loc[known, key].astype("int64") for key in ("last_rank", "late_ns"))
    late[where[known]] = [
        f',"last_rank":{rank},"late_us":{ns // 1000}.{ns % 1000:03d}'
        for rank, ns in zip(ranks.tolist(), late_ns.tolist(), strict=True)
    ]
    return process_set, late


def _same_collective(
    columns: Columns, rows: NDArray[np.intp], candidates: NDArray[np.intp]
) -> NDArray[np.intp]:
    """For each of `rows`, a candidate of the same name and sequence number; -1: there is none.

    The number is the same on every rank, so what this rank has not recorded, another may have.
    """
    if len(rows) == 0 or len(candidates) == 0:
        return np.full(len(rows), -1, np.intp)
    key = columns["seq"] * (int(columns["name"].max()) + 1) + columns["name"]
    order = candidates[np.argsort(key[candidates], kind="stable")]
    at = np.minimum(np.searchsorted(key[order], key[rows]), len(order) - 1)
    return np.where(key[order[at]] == key[rows], order[at], -1)


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


def args_template(kind: Kind) -> tuple[str, tuple[str, ...]]:
    """A %-format for the "args" of events of a kind, and the columns that fill it in."""
    fields = {column: label for column, label in kind.fields.items() if label != "cycle"}
    args = ",".join(f'"{label}":{_FORMATS.get(column, "%d")}' for column, label in fields.items())
    keys: tuple[str, ...] = tuple(fields)
    if kind.duration:
        args += f',"{kind.duration}":%d.%03d'
        keys += ("dur", "dur_decimals")
    if kind.name == "NEGOTIATE":
        args += "%s%s"
        keys += ("process_set", "late")
    return f"{{{args}}}", keys


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


_FORMATS = {"name": "%s"}
