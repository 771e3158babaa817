"""Writes a trace as Chrome JSON, Parquet or CSV; all but CSV read back as the same slices."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from hvdtune.timeline.model.event_labels import json_text
from hvdtune.timeline.model.trace import Trace
from hvdtune.timeline.model.viewer_rows import lanes_of
from hvdtune.timeline.reading.formats import container, parquet
from hvdtune.timeline.writing.export import replacing, write_chrome

Kind = Literal["chrome", "perfetto", "parquet", "csv"]
_ROWS_PER_CHUNK = 1 << 16
_WITH_ID = frozenset("bnstfNODSTp")
_ENDINGS = {"b": "e", "S": "F"}


def write_slices(trace: Trace, path: Path | str, kind: Kind) -> None:
    """Write a trace to a file, gzipped where its name ends in ".gz".

    Args:
        kind: "chrome" and "perfetto" are the same JSON, which both viewers open; slices that
            overlap without nesting get further rows there. "parquet" and "csv" have the columns
            of `Trace.slices`.

    Raises:
        OSError: it cannot be written; nothing is left of it then.
    """
    if trace.parsed is None and kind in ("chrome", "perfetto"):
        # As after a run, which says more of hvdtune's own events.
        write_chrome(trace, path)
        return
    with replacing(Path(path), plain=kind == "parquet") as file:
        _WRITERS[kind](trace, file)


def _write_csv(trace: Trace, file: IO[bytes]) -> None:
    trace.slices.to_csv(file, index=False)


def _write_chrome(trace: Trace, file: IO[bytes]) -> None:
    rows = _Rows(trace.slices)
    files = list(_files(trace))
    said: dict[str, Any] = {"version": container.VERSION, "files": files, "tracks": rows.tracks}
    said |= {"origin_unix_ns": trace.origin_unix_ns, "counts": trace.counts}
    said |= {"warnings": trace.warnings}
    head = json_text({container.KEY: said})
    file.write(f'{{"displayTimeUnit":"ms","otherData":{head},\n"traceEvents":[\n'.encode())
    first = True
    for lines in (rows.titles(), *rows.lines()):
        if lines:
            file.write((("" if first else ",\n") + ",\n".join(lines)).encode())
            first = False
    file.write(b"\n]}\n")


def _files(trace: Trace) -> Iterator[dict[str, Any]]:
    file = trace.slices["file"].to_numpy()
    rank = trace.slices["rank"].to_numpy()
    for index, each in enumerate(trace.files):
        said: dict[str, Any] = {"path": each.path, "format": each.format}
        own = np.unique(rank[file == index])
        if len(own) == 1:
            said["rank"] = int(own[0])
        yield said | {"around": dict(each.around)}


_WRITERS: dict[str, Callable[[Trace, IO[bytes]], None]] = {
    "chrome": _write_chrome,
    "perfetto": _write_chrome,
    "parquet": parquet.write_parquet,
    "csv": _write_csv,
}


class _Rows:
    """The rows of the viewer: a process for each of a file, a thread for each lane of a thread."""

    def __init__(self, slices: pd.DataFrame) -> None:
        self._slices = slices
        keys = ["file", "rank", "process", "thread", "pid", "tid"]
        texts = keys[2:]
        codes = slices[keys].assign(**{key: slices[key].cat.codes for key in texts})
        drawn = (slices["phase"] == "X").to_numpy()
        track = codes.groupby(keys, sort=False).ngroup().to_numpy().astype(np.int64)
        lane = np.zeros(len(slices), np.int64)
        begin, end = slices["begin_ns"].to_numpy(), slices["end_ns"].to_numpy()
        lane[drawn] = lanes_of(track[drawn], begin[drawn], end[drawn])
        table = codes.assign(lane=lane)
        self._row = table.groupby([*keys, "lane"], sort=False).ngroup().to_numpy()
        first = np.unique(self._row, return_index=True)[1]
        self._of_row = slices[keys].iloc[first].reset_index(drop=True)
        self._lane_of_row = lane[first].tolist()
        self._places = list(_viewer_ids(self._of_row))
        old = zip(*(self._of_row[key] for key in ("file", "pid", "tid")), strict=True)
        self.tracks = [
            [pid, tid, int(file), old_pid, old_tid]
            for (pid, tid), (file, old_pid, old_tid) in zip(self._places, old, strict=True)
        ]

    def titles(self) -> list[str]:
        """Lines that name processes and threads."""
        done = set()
        lines = []
        titles = zip(self._of_row["process"], self._of_row["thread"], strict=True)
        for (pid, tid), lane, (process, thread) in zip(
            self._places, self._lane_of_row, titles, strict=True
        ):
            if pid not in done and process:
                done.add(pid)
                lines.append(_title("process_name", pid, 0, process))
            if thread:
                title = f"{thread} ({lane + 1})" if lane else thread
                lines.append(_title("thread_name", pid, tid, title))
        return lines

    def _ids(self, chunk: pd.DataFrame) -> list[str]:
        ids = chunk["id"].tolist()
        if not any(ids):
            return [""] * len(chunk)
        pairs = zip(chunk["file"].tolist(), ids, strict=True)
        return [
            json_text(container.id_in_export(file, text)) if text else "" for file, text in pairs
        ]

    def lines(self) -> Iterator[list[str]]:
        """Lines of events, a chunk at a time."""
        texts = {
            key: np.array(
                [json_text(str(text)) for text in self._slices[key].cat.categories], object
            )
            for key in ("name", "category")
        }
        places = np.array(
            [f'"pid":{json_text(pid)},"tid":{json_text(tid)}' for pid, tid in self._places] or [""],
            object,
        )
        for begin in range(0, len(self._slices), _ROWS_PER_CHUNK):
            chunk = self._slices.iloc[begin : begin + _ROWS_PER_CHUNK]
            named: dict[str, Any] = {
                key: texts[key][chunk[key].cat.codes.to_numpy()] for key in texts
            }
            rows = places[self._row[begin : begin + _ROWS_PER_CHUNK]]
            named["id"] = self._ids(chunk)
            yield [line for lines in _events(chunk, named, rows) for line in lines]


def _viewer_ids(rows: pd.DataFrame) -> Iterator[tuple[Any, Any]]:
    """A pid and a tid for each row, as in the files where they can stay."""
    taken: dict[Any, Any] = {}  # of a process in the export, whose it is
    pids: dict[Any, Any] = {}
    tids: set[tuple[Any, Any]] = set()
    fresh = 1_000_000
    for row in rows.itertuples():
        whose = (row.file, row.rank, row.pid)
        pid = pids.get(whose)
        if pid is None:
            pid = _number(str(row.pid))
            while taken.setdefault(pid, whose) != whose or pid == "":
                fresh += 1
                pid = fresh
            pids[whose] = pid
        tid = _number(str(row.tid))
        while (pid, tid) in tids or tid == "":
            fresh += 1
            tid = fresh
        tids.add((pid, tid))
        yield pid, tid


def _number(text: str) -> int | str:
    return int(text) if text.isdecimal() and len(text) < 16 and str(int(text)) == text else text


def _title(what: str, pid: Any, tid: Any, title: str) -> str:
    return json_text({"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": title}})


def _events(
    chunk: pd.DataFrame, named: dict[str, Any], places: NDArray[Any]
) -> Iterator[list[str]]:
    begin = chunk["begin_ns"].tolist()
    end = chunk["end_ns"].tolist()
    columns = zip(
        chunk["phase"].tolist(), named["name"], named["category"], named["id"], places,
        begin, end, chunk["open"].tolist(), chunk["args"].tolist(),
        chunk["seq"].tolist(), (chunk["kind"] == "CYCLE").tolist(), strict=True,
    )  # fmt: skip
    for phase, name, category, ident, place, at, until, is_open, args, seq, cycle in columns:
        middle = f'"name":{name},{place},"ts":{_us(at)}'
        if category != '""':
            middle += f',"cat":{category}'
        if phase in _WITH_ID and ident:
            middle += f',"id":{ident}'
        if is_open:
            args = _marked(args)
        rest = f',"args":{args}' if args else ""
        if phase == "X":
            yield [f'{{"ph":"X",{middle},"dur":{_us(until - at)}{rest}}}']
        elif phase in _ENDINGS:
            closing = middle.replace(f'"ts":{_us(at)}', f'"ts":{_us(until)}', 1)
            yield [
                f'{{"ph":"{phase}",{middle}{rest}}}',
                f'{{"ph":"{_ENDINGS[phase]}",{closing}}}',
            ]
        elif cycle and phase == "C":
            yield [f'{{"ph":"C",{middle},"cycle":{seq}{rest}}}']
        else:
            scope = ',"s":"t"' if phase == "i" else ',"bp":"e"' if phase == "f" else ""
            yield [f'{{"ph":{json_text(phase)},{middle}{scope}{rest}}}']


def _us(ns: int) -> str:
    sign = "-" if ns < 0 else ""
    whole, decimals = divmod(abs(ns), 1000)
    return f"{sign}{whole}.{decimals:03d}"


def _marked(args: str) -> str:
    inside = args[1:-1].rstrip() if args[:1] == "{" else ""
    return f"{{{inside},{container.OPEN}}}" if inside else f"{{{container.OPEN}}}"
