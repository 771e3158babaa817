"""Columns of the model from what was parsed, as far as every format has them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from hvdtune.timeline.model.slices import (
    COLUMNS,
    KIND_TEXTS,
    categorical,
    categories_of,
    kind_column,
)
from hvdtune.timeline.reading.json.parsed import ParsedFile

_DIRECT = ("begin_ns", "end_ns", "open", "seq", "bucket", "bytes", "process_set")
_MAX_PAIRS = 1 << 24


def frame_of(parsed: ParsedFile) -> pd.DataFrame:
    """All columns but `args` where that was not read; rank -1, kind and tensor "", file's times."""
    table = parsed.table
    texts, tracks = parsed.texts, parsed.tracks
    column = {name: table[name].to_numpy() for name in table.column_names if name != "args"}
    track = column["track"]
    columns: dict[str, Any] = {name: column[name] for name in _DIRECT}
    columns |= {name: categorical(column[name], texts) for name in ("name", "category", "id")}
    columns["pid"] = categories_of(tracks.pid, track)
    columns["tid"] = categories_of(tracks.tid, track)
    columns["process"] = categories_of([process_title(parsed, pid) for pid in tracks.pid], track)
    titles = [thread_title(parsed, *ids) for ids in zip(tracks.pid, tracks.tid, strict=True)]
    columns["thread"] = categories_of(titles, track)
    columns["phase"] = categorical(column["phase"], [chr(letter) for letter in range(256)])
    columns["cached"] = np.clip(column["cached"], -1, 1).astype(np.int8)
    columns["rank"] = np.full(len(table), -1, np.int32)
    columns["kind"] = kind_column(np.zeros(len(table), np.int8))
    columns["tensor"] = categories_of([""], np.zeros(len(table), np.int8))
    if "args" in table.column_names:
        columns["args"] = table.select(["args"]).to_pandas()["args"]
    order = [name for name in COLUMNS if name in columns]
    return pd.DataFrame({name: columns[name] for name in order}, copy=False)


def process_title(parsed: ParsedFile, pid: str) -> str:
    """The title of a process."""
    return parsed.tracks.processes.get(pid) or (f"pid {pid}" if pid else "")


def thread_title(parsed: ParsedFile, pid: str, tid: str) -> str:
    """The title of a thread."""
    return parsed.tracks.threads.get(pid, {}).get(tid) or (f"tid {tid}" if tid else "")


def kinds_of_frame(frame: pd.DataFrame, kind: Callable[[str, str], str]) -> NDArray[np.int8]:
    """Numbers of kinds, from a rule that says the kind by name and category."""
    names, categories = (list(frame[key].cat.categories) for key in ("name", "category"))
    pairs = frame["name"].cat.codes.to_numpy().astype(np.int64) * len(categories)
    pairs += frame["category"].cat.codes.to_numpy()
    if len(names) * len(categories) <= _MAX_PAIRS:
        used = np.flatnonzero(np.bincount(pairs, minlength=1)) if len(pairs) else pairs
    else:
        used = np.unique(pairs)
    codes = np.empty(len(used), np.int8)
    for index, found in enumerate(used.tolist()):
        name, category = divmod(found, len(categories))
        codes[index] = KIND_TEXTS.index(kind(names[name], categories[category]))
    return codes[np.searchsorted(used, pairs)]


def count_within(*keys: NDArray[Any]) -> NDArray[np.int64]:
    """Count for each row how many rows before it have the same keys."""
    if len(keys[0]) == 0:
        return np.empty(0, np.int64)
    order = np.lexsort(keys[::-1])
    changes = np.zeros(len(order), bool)
    changes[0] = True
    for key in keys:
        changes[1:] |= key[order][1:] != key[order][:-1]
    starts = np.flatnonzero(changes)
    lengths = np.diff(np.append(starts, len(order)))
    number = np.arange(len(order)) - np.repeat(starts, lengths)
    counted = np.empty(len(order), np.int64)
    counted[order] = number
    return counted
