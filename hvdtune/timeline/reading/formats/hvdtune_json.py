"""What hvdtune itself exported as Chrome JSON; ours and back without loss."""

from typing import Any

import numpy as np
import pandas as pd

from hvdtune.timeline.model.schema import KIND_NAMES, KINDS
from hvdtune.timeline.model.slices import KIND_TEXTS, categories_of, kind_column
from hvdtune.timeline.model.trace import ranks_of
from hvdtune.timeline.reading.formats import container
from hvdtune.timeline.reading.formats.frame import kinds_of_frame
from hvdtune.timeline.reading.json.parsed import ParsedFile

NAME = "hvdtune-json"
NAMES_TENSORS = True
GAP = ""
infer_events = None
_HEADLESS = (
    "{}: the beginning of this hvdtune trace is lost, including the names of tensors, the hosts, "
    "the size of the job and its setting"
)
_META: dict[str, type] = {"shapes": dict, "origin_ns": int, "origin_unix_ns": int}


def recognizes(parsed: ParsedFile) -> bool:
    """Whether hvdtune exported it."""
    other = parsed.around.get("otherData")
    return (isinstance(other, dict) and "hvdtune" in other) or _lacks_head(parsed)


def _lacks_head(parsed: ParsedFile) -> bool:
    """Whether it is what is left of such a file whose beginning is lost."""
    texts = set(parsed.texts)
    has_own = any({name, KINDS[name].row} <= texts for name in ("BUCKET", "STEP"))
    return has_own and "otherData" not in parsed.around


def finish(frame: pd.DataFrame, parsed: ParsedFile) -> dict[int, dict[str, Any]]:
    """Fills in what the format means; what is known of the ranks."""
    code = kinds_of_frame(frame, kind)
    frame["kind"] = kind_column(code)
    frame["rank"] = _integers(frame["pid"]).astype(np.int32)
    announced = code == KIND_TEXTS.index("NEGOTIATE")
    sets = frame["process_set"].to_numpy()
    # A set is only written where it is not the world.
    frame["process_set"] = np.where(announced & (sets < 0), 0, sets)
    rows = _integers(frame["tid"])
    on_tensor = np.isin(code, [KIND_TEXTS.index(name) for name in _OF_TENSORS])
    used, inverse = np.unique(np.where(on_tensor, rows, -1), return_inverse=True)
    tensors = _tensors(parsed)
    if _lacks_head(parsed):  # which has their names; a tensor has one row on all ranks
        tensors = {row: f"tensor of row {row}" for row in used.tolist() if row >= 0}
    frame["tensor"] = categories_of([tensors.get(row, "") for row in used.tolist()], inverse)
    return ranks_of(meta_of(parsed))


def rank_of_track(parsed: ParsedFile) -> list[int]:
    """Processes are ranks."""
    return [_integer(pid) for pid in parsed.tracks.pid]


def origin_unix_ns(parsed: ParsedFile) -> int | None:
    """The file's time 0 in ns since 1970."""
    said = meta_of(parsed).get("origin_unix_ns")
    return said if isinstance(said, int) and abs(said) < 2**62 else None


def meta_of(parsed: ParsedFile) -> dict[str, Any]:
    """`Trace.meta` as it was exported, as far as it is sound."""
    other = parsed.around.get("otherData")
    meta = other.get("meta") if isinstance(other, dict) else None
    kept: dict[str, Any] = {}
    for key, value in (meta if isinstance(meta, dict) else {}).items():
        if key in ("ranks", "dropped", "clock") and isinstance(value, dict):
            kept[key] = {int(rank): said for rank, said in value.items() if rank.isdecimal()}
        elif isinstance(value, _META.get(key, ())):
            kept[key] = value
    return kept


def warnings_of(parsed: ParsedFile) -> list[str]:
    """Warnings on a file, and on the trace that hvdtune wrote to it, if it did."""
    other = parsed.around.get("otherData")
    head = other if isinstance(other, dict) else {}
    said = head.get(container.KEY) or (head if "hvdtune" in head else {})
    texts = said.get("warnings") if isinstance(said, dict) else None
    known = [text for text in texts if isinstance(text, str)] if isinstance(texts, list) else []
    written = head.get("events") if "hvdtune" in head else None
    shown = sum(numbers["shown"] for phase, numbers in parsed.counts.items() if phase != "M")
    if isinstance(written, int) and shown < written:
        count = f"{shown:,} of {written:,} written events could be read"
        lost = [f"{parsed.path}: {count}"]
    elif _lacks_head(parsed):
        lost = [_HEADLESS.format(parsed.path)]
    else:
        lost = []
    return [*known, *parsed.warnings, *lost]


def kind(name: str, category: str) -> str:
    """The kind of events of a name and a category; see `slices.KIND_TEXTS`."""
    if category == KINDS["SPAN"].row and name not in KINDS:
        return "SPAN"  # its name is what the script said it does
    if name == "cycle":
        return "CYCLE"
    if name.startswith("NEGOTIATE_") and name.removeprefix("NEGOTIATE_") in KINDS:
        return "NEGOTIATE"
    return name if name in KINDS and name != "CYCLE" else ""


_OF_TENSORS = [name for name in KIND_NAMES if KINDS[name].row == "tensor"]


def _integer(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else -1


def _integers(texts: "pd.Series[str]") -> "np.ndarray[Any, np.dtype[np.int64]]":
    of = texts.cat
    values = [_integer(text) for text in of.categories]
    return np.array(values or [-1], np.int64)[of.codes.to_numpy()]


def _tensors(parsed: ParsedFile) -> dict[int, str]:
    other = parsed.around.get("otherData")
    said = other.get("tensors") if isinstance(other, dict) else None
    found = said.items() if isinstance(said, dict) else ()
    return {int(row): str(name) for row, name in found if row.isdecimal() and len(row) < 10}
