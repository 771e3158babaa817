"""From slices to events: those of hvdtune's kinds, which its tables and its dashboard show."""

from typing import Any

import msgspec
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from hvdtune.timeline.model.event_table import make_events
from hvdtune.timeline.model.other_slices import UnsortedOthers, from_slices
from hvdtune.timeline.model.schema import (
    KIND_NAMES,
    KINDS,
    PROCESS_SET_UNIT,
    Kind,
)

# Labels that the model has columns for; others are in "args".
_KNOWN = {"seq", "step", "cycle", "bucket", "bytes", "process_set", "cached", ""}

# Letters of Chrome events that last, or happen on a thread at a time.
DRAWN = ("X", "b", "i", "n")


def events_of(slices: pd.DataFrame) -> pd.DataFrame:
    """`trace.Trace.events` from slices; what those do not know is 0."""
    kind = _kinds(slices)
    ours = kind >= 0
    slices, kind = slices[ours], kind[ours]
    names: dict[str, int] = {"": 0}
    columns: dict[str, NDArray[Any]] = {
        "rank": np.maximum(slices["rank"].to_numpy(), 0),
        "kind": kind,
        "begin_ns": slices["begin_ns"].to_numpy(),
        "end_ns": slices["end_ns"].to_numpy().copy(),
        **{name: np.zeros(len(slices), np.int64) for name in ("name", "seq", "bucket", "arg")},
    }
    for code in np.unique(kind).tolist():
        where = np.flatnonzero(kind == code)
        _fill(columns, where, slices.iloc[where], KINDS[KIND_NAMES[code]], names)
    return make_events(columns, list(names))


def others_of(slices: pd.DataFrame) -> UnsortedOthers:
    """What of slices is in `trace.Trace.others`."""
    others = _kinds(slices) < 0
    drawn = _is_drawn(slices)
    part = from_slices(slices, others & drawn)
    part.unused = int((others & ~drawn).sum())
    return part


def unused_of(slices: pd.DataFrame) -> int:
    """How many slices are neither in `Trace.events` nor in `Trace.others`."""
    return int(((_kinds(slices) < 0) & ~_is_drawn(slices)).sum())


def _kinds(slices: pd.DataFrame) -> NDArray[np.int64]:
    """Numbers of hvdtune's kinds; -1 for all others."""
    kind = slices["kind"].cat.codes.to_numpy().astype(np.int64) - 1
    return np.where(kind < len(KIND_NAMES), kind, -1)


def _is_drawn(slices: pd.DataFrame) -> NDArray[np.bool_]:
    drawn: NDArray[np.bool_] = slices["phase"].isin(DRAWN).to_numpy()
    return drawn


def _fill(
    columns: dict[str, NDArray[Any]],
    where: NDArray[np.intp],
    slices: pd.DataFrame,
    kind: Kind,
    names: dict[str, int],
) -> None:
    """Columns of the events of one kind."""
    labels = [*kind.fields.values(), kind.duration]
    args = _decoded(slices["args"]) if set(labels) - _KNOWN else [{}] * len(slices)
    for column, label in kind.fields.items():
        if column == "name":
            texts = [str(said.get(label, "")) for said in args]
            columns["name"][where] = [names.setdefault(text, len(names)) for text in texts]
        elif label in _KNOWN:
            source = "seq" if label in ("step", "cycle") else label
            columns[column][where] = np.maximum(slices[source].to_numpy(), 0)
        else:
            columns[column][where] = [_whole(said.get(label)) for said in args]
    if kind.name == "NEGOTIATE":
        sets = np.maximum(slices["process_set"].to_numpy(), 0)
        columns["arg"][where] += sets * PROCESS_SET_UNIT
    if kind.row == "tensor":
        codes = slices["tensor"].cat.codes.to_numpy()
        tensors = slices["tensor"].cat.categories
        known = np.array([names.setdefault(str(text), len(names)) for text in tensors])
        columns["name"][where] = known[codes]
    if kind.duration:
        lasted = [_us_in_ns(said.get(kind.duration)) for said in args]
        columns["end_ns"][where] = columns["begin_ns"][where] + np.array(lasted, np.int64)


def _decoded(args: "pd.Series[str]") -> list[dict[str, Any]]:
    decoder = msgspec.json.Decoder(dict[str, Any])
    decoded = []
    for text in args:
        try:
            decoded.append(decoder.decode(text) if text else {})
        except (msgspec.MsgspecError, ValueError, RecursionError):
            decoded.append({})
    return decoded


def _whole(value: Any) -> int:
    return value if isinstance(value, int) and abs(value) < 2**62 else 0


def _us_in_ns(value: Any) -> int:
    return round(value * 1000) if isinstance(value, int | float) and 0 <= value < 1e15 else 0
