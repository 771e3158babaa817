"""What `write_slices` wrote: the events of several files, each with what it was read from."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hvdtune.timeline.reading.json.assemble import Tracks
from hvdtune.timeline.reading.json.parsed import ParsedFile

KEY = "hvdtune_files"
VERSION = 1
_IDS_PER_FILE = 1 << 40
# A slice without an end has one in the export, because viewers draw such slices badly.
OPEN = '"hvdtune_open":true'


def files_in(parsed: ParsedFile) -> list[tuple[ParsedFile, dict[str, Any]]] | None:
    """Each file as it was, and what was said of it; None: it is no such export, or not sound."""
    other = parsed.around.get("otherData")
    said = other.get(KEY) if isinstance(other, dict) else None
    if not isinstance(said, dict) or said.get("version") != VERSION:
        return None
    files, tracks = said.get("files"), said.get("tracks")
    if not isinstance(files, list) or not isinstance(tracks, list):
        return None
    files = [each for each in files if isinstance(each, dict)]
    if not files:
        return None
    places = {
        (str(each[0]), str(each[1])): each[2:]
        for each in tracks
        if isinstance(each, list) and len(each) == 5 and isinstance(each[2], int)
    }
    return list(_split(parsed, files, places))


def _split(
    parsed: ParsedFile, files: list[dict[str, Any]], places: dict[tuple[str, str], list[Any]]
) -> Iterator[tuple[ParsedFile, dict[str, Any]]]:
    table = _closed_as_they_were(parsed.table)
    tracks = parsed.tracks
    # Titles of processes are on threads that no slice is on.
    files_of = {pid: place[:2] for (pid, _), place in places.items()}
    where = [
        places.get((pid, tid)) or [*files_of.get(pid, [0, pid]), tid]
        for pid, tid in zip(tracks.pid, tracks.tid, strict=True)
    ]
    file_of = np.array([place[0] for place in where] or [0])
    row_file = file_of[table["track"].to_numpy()]
    for index, said in enumerate(files):
        around = said.get("around")
        own = Tracks(
            pid=[str(place[1]) for place in where],
            tid=[str(place[2]) for place in where],
            clues=dict(around) if isinstance(around, dict) else {},
        )
        for (pid, tid), place in zip(zip(tracks.pid, tracks.tid, strict=True), where, strict=True):
            if place[0] != index:
                continue
            if pid in tracks.processes:
                own.processes.setdefault(str(place[1]), tracks.processes[pid])
            title = tracks.threads.get(pid, {}).get(tid)
            if title is not None:
                own.threads.setdefault(str(place[1]), {}).setdefault(str(place[2]), title)
        rows, texts = _with_old_ids(table.filter(pa.array(row_file == index)), parsed.texts, index)
        yield (
            ParsedFile(
                path=str(said.get("path", parsed.path)),
                table=rows,
                texts=texts,
                tracks=own,
                around=own.clues,
            ),
            said,
        )


def id_in_export(index: int, text: str) -> str:
    """The id in an export for an id of a file; viewers take equal ids of several files for one.

    A number stays one, because Perfetto knows flows by number only.
    """
    if index == 0 or not text:
        return text
    if _is_number(text) and int(text) < _IDS_PER_FILE:
        return str(index * _IDS_PER_FILE + int(text))
    return f"{index}/{text}"


def _id_in_file(index: int, text: str) -> str:
    if _is_number(text):
        number = int(text) - index * _IDS_PER_FILE
        return str(number) if 0 <= number < _IDS_PER_FILE else text
    return text.removeprefix(f"{index}/")


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 19 and str(int(text)) == text


def _with_old_ids(table: pa.Table, texts: list[str], index: int) -> tuple[pa.Table, list[str]]:
    used = pc.unique(table["id"]).to_pylist()
    if index == 0 or not any(used):
        return table, texts
    known = {text: code for code, text in enumerate(texts)}
    old = [known.setdefault(_id_in_file(index, texts[code]), len(known)) for code in used]
    codes = np.zeros(len(texts), np.int32)
    codes[used] = old
    ids = pa.array(codes[table["id"].to_numpy()])
    return table.set_column(table.schema.get_field_index("id"), "id", ids), list(known)


def _closed_as_they_were(table: pa.Table) -> pa.Table:
    if "args" not in table.column_names:
        return table
    args = table["args"]
    marked = pc.match_substring(args, OPEN)
    if not pc.any(marked).as_py():
        return table
    plain = pc.replace_substring(pc.replace_substring(args, "," + OPEN, ""), OPEN, "")
    plain = pc.if_else(pc.and_(marked, pc.equal(plain, "{}")), "", plain)
    table = table.set_column(table.schema.get_field_index("args"), "args", plain)
    return table.set_column(table.schema.get_field_index("open"), "open", marked)
