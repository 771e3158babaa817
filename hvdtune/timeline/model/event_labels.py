"""What viewers show of hvdtune's own events: their names, their places, their arguments as JSON."""

import json
from collections.abc import Iterable
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from hvdtune.timeline.model.lateness import COLLECTIVE_KEY, lateness_of_announcements
from hvdtune.timeline.model.schema import (
    COLLECTIVES,
    KIND_NAMES,
    KINDS,
    PROCESS_SET_UNIT,
    HasEvents,
    Kind,
)
from hvdtune.timeline.model.viewer_rows import ViewerRows

FORMAT = 1
Columns = dict[str, NDArray[Any]]
_NEGOTIATE = KIND_NAMES.index("NEGOTIATE")
_FORMATS = {"name": "%s"}


def json_text(value: object) -> str:
    """A value as JSON that every viewer reads."""
    try:
        text = msgspec.json.encode(value).decode()
    except UnicodeEncodeError:  # the name of a file that is not text
        text = json.dumps(msgspec.to_builtins(value), ensure_ascii=False)
        text = text.encode("utf-8", "replace").decode()
    # Perfetto's reader loses its place at a backslash before the quote that ends a string.
    return text.replace(r"\\", r"\u005c")


def head_of(trace: HasEvents, rows: ViewerRows) -> dict[str, Any]:
    """The head of an export: everything about a trace but its events."""
    return {
        "hvdtune": FORMAT,
        "events": len(trace.events),
        "meta": trace.meta,
        "warnings": trace.warnings,
        "tensors": rows.tensors,
    }


def rank_title(rank: int, host: str | None) -> str:
    """The title of the process of a rank."""
    return f"rank {rank} ({host})" if host else f"rank {rank}"


def json_names(trace: HasEvents) -> NDArray[Any]:
    """JSON text of each category of the events' names."""
    return json_texts(trace.events["name"].cat.categories)


def span_titles(trace: HasEvents) -> list[str]:
    """The title of a SPAN for each category of the events' names: its name, if that is clear."""
    names = trace.events["name"].cat.categories
    return ["SPAN" if text == "" or text in KINDS else text for text in names]


def json_texts(texts: Iterable[str]) -> NDArray[Any]:
    """Each text as JSON."""
    return np.array([json_text(text) for text in texts], dtype=object)


def event_columns(trace: HasEvents, rows: ViewerRows) -> Columns:
    """The values in events' lines, a column each; names and kinds as numbers."""
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


def _negotiation_details(trace: HasEvents) -> tuple[NDArray[Any], NDArray[Any]]:
    """For each negotiation, its process set and who was late, as JSON; "" where there is none."""
    process_set, late = (np.full(len(trace.events), "", dtype=object) for _ in range(2))
    where = np.flatnonzero(trace.events["kind"].cat.codes.to_numpy() == _NEGOTIATE)
    announced = trace.events.iloc[where][["name", "seq", "arg"]]
    announced = announced.assign(process_set=announced["arg"] // PROCESS_SET_UNIT)
    process_set[where] = [
        f',"process_set":{number}' if number else "" for number in announced["process_set"].tolist()
    ]
    known_late = lateness_of_announcements(trace)
    found = announced.merge(known_late, on=list(COLLECTIVE_KEY), how="left")
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
