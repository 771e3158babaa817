"""From events to slices: what viewers draw of hvdtune's own recordings."""

from typing import Any, Final, cast

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from hvdtune.timeline.model.event_labels import (
    args_template,
    event_columns,
    json_names,
    rank_title,
    span_titles,
)
from hvdtune.timeline.model.ordering import slice_order
from hvdtune.timeline.model.schema import KIND_NAMES, KINDS, PROCESS_SET_UNIT, HasEvents
from hvdtune.timeline.model.slices import KIND_TEXTS, categories_of, kind_column
from hvdtune.timeline.model.viewer_rows import assign_rows

_NUMBERS = ("seq", "step", "cycle", "bucket", "bytes", "process_set")
_KIND = [KINDS[name] for name in KIND_NAMES]
_NEGOTIATE = KIND_NAMES.index("NEGOTIATE")
_CYCLE = KIND_NAMES.index("CYCLE")
_SPAN = KIND_NAMES.index("SPAN")
_SPANS: Final = np.array([each.span for each in _KIND])
_LETTERS: Final = ("X", "i", "C")
assert KIND_TEXTS[1 : 1 + len(KIND_NAMES)] == KIND_NAMES


def slices_of(trace: HasEvents) -> pd.DataFrame:
    """`trace.Trace.slices` from events."""
    rows = assign_rows(trace)
    said = event_columns(trace, rows)
    kind = said["kind"].astype(np.int64)
    begin = trace.events["begin_ns"].to_numpy()
    span = _SPANS[kind]
    number = {name: _field(trace, kind, name) for name in _NUMBERS}
    seq = np.max([number[name] for name in ("seq", "step", "cycle")], axis=0)
    announced = kind == _NEGOTIATE
    arg = trace.events["arg"].to_numpy()
    on_tensor = np.array([each.row == "tensor" for each in _KIND])[kind]
    tensors = [*trace.events["name"].cat.categories, ""]
    ranks = said["rank"].astype(np.int64)
    columns: dict[str, Any] = {
        "rank": ranks.astype(np.int32),
        "kind": kind_column((kind + 1).astype(np.int8)),
        "name": categories_of(*_names(said, kind, span_titles(trace))),
        "tensor": categories_of(tensors, np.where(on_tensor, said["name"], len(tensors) - 1)),
        "begin_ns": begin,
        "end_ns": np.where(span, trace.events["end_ns"].to_numpy(), begin),
        "open": np.zeros(len(kind), bool),
        "seq": seq,
        "bucket": number["bucket"],
        "bytes": number["bytes"],
        "process_set": np.where(announced, arg // PROCESS_SET_UNIT, number["process_set"]),
        "cached": np.where(announced, arg % PROCESS_SET_UNIT, -1).astype(np.int8),
        "phase": categories_of(list(_LETTERS), _letter_codes(kind)),
        "category": categories_of(
            ["" if each.name == "CYCLE" else each.row for each in _KIND], kind
        ),
        **_places(trace, ranks, rows.row, rows.titles),
        "id": categories_of([""], np.zeros(len(kind), np.int8)),
        "args": _args(trace, said),
        "file": np.zeros(len(kind), np.int16),
    }
    frame = pd.DataFrame(columns, copy=False)
    order = slice_order(begin, columns["end_ns"])
    return frame if order is None else frame.take(order).reset_index(drop=True)


def counts_of(events: pd.DataFrame) -> dict[str, dict[str, int]]:
    """`trace.Trace.counts` from events, all of which are shown."""
    letters = _letter_codes(events["kind"].cat.codes.to_numpy().astype(np.int64))
    counts = np.bincount(letters, minlength=len(_LETTERS)).tolist()
    return {
        letter: {"read": count, "shown": count, "reported": 0}
        for letter, count in sorted(zip(_LETTERS, counts, strict=True))
        if count
    }


def _letter_codes(kind: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.where(_SPANS[kind], 0, np.where(kind == _CYCLE, 2, 1))


def _field(trace: HasEvents, kind: NDArray[np.int64], label: str) -> NDArray[np.int64]:
    """The values called `label`, whichever column has them; -1 where a kind has none."""
    values = np.full(len(kind), -1, np.int64)
    for code, each in enumerate(_KIND):
        column = next((key for key, said in each.fields.items() if said == label), None)
        if column is not None:
            where = np.flatnonzero(kind == code)
            values[where] = trace.events[column].to_numpy()[where]
    return values


def _names(
    said: dict[str, NDArray[Any]], kind: NDArray[np.int64], spans: list[str]
) -> tuple[list[str], Any]:
    texts = ["cycle" if name == "CYCLE" else name for name in KIND_NAMES]
    index = np.where(kind == _SPAN, len(texts) + said["title"], kind)
    texts += spans
    operations = sorted(set(said["announced"].tolist()))
    for number, text in enumerate(operations, start=len(texts)):
        index[(kind == _NEGOTIATE) & (said["announced"] == text)] = number
    return [*texts, *operations], index


def _places(
    trace: HasEvents, ranks: NDArray[np.int64], row: NDArray[np.int64], titles: dict[int, str]
) -> dict[str, Any]:
    known = trace.meta.get("ranks", {})
    used, of_rank = np.unique(ranks, return_inverse=True)
    rows, of_row = np.unique(row, return_inverse=True)
    hosts = [known.get(rank, {}).get("host") for rank in used.tolist()]
    names = [rank_title(rank, host) for rank, host in zip(used.tolist(), hosts, strict=True)]
    # Cycles and settings are of the whole process, and drawn with the steps.
    return {
        "process": categories_of(names, of_rank),
        "thread": categories_of([titles.get(number, "steps") for number in rows.tolist()], of_row),
        "pid": categories_of([str(rank) for rank in used.tolist()], of_rank),
        "tid": categories_of([str(number) for number in rows.tolist()], of_row),
    }


def _args(trace: HasEvents, said: dict[str, NDArray[Any]]) -> "pd.Series[str]":
    names = json_names(trace)
    texts = np.empty(len(said["kind"]), object)
    for code in np.unique(said["kind"]).tolist():
        template, keys = args_template(_KIND[code])
        where = np.flatnonzero(said["kind"] == code)
        values = [
            (names[said[key][where]] if key == "name" else said[key][where]).tolist()
            for key in keys
        ]
        texts[where] = [template % each for each in zip(*values, strict=True)] if keys else template
    return cast(
        "pd.Series[str]", pa.table({"args": pa.array(texts, pa.string())}).to_pandas()["args"]
    )
