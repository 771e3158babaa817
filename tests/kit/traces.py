"""Traces of other programs, and documents made of events."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hvdtune.timeline import Trace
from hvdtune.timeline.model.slices import COLUMNS
from hvdtune.timeline.reading.json.batch import EventScanner
from hvdtune.timeline.reading.json.chrome_json import parse
from hvdtune.timeline.reading.json.damage import DamageReport
from hvdtune.timeline.reading.json.parsed import ParsedFile

DATA = Path(__file__).parents[1] / "timeline" / "data"
ALL = sorted(path for path in DATA.glob("*/*") if path.is_file() and path.name[0] != ".")
HOROVOD, KINETO, SPEEDSCOPE = DATA / "horovod", DATA / "kineto", DATA / "speedscope"


def event(ph: str, ts: float, name: str = "work", **more: Any) -> dict[str, Any]:
    """An event of process 1, thread 2."""
    return {"ph": ph, "name": name, "pid": 1, "tid": 2, "ts": ts} | more


def write(path: Path, *events: dict[str, Any], **around: Any) -> Path:
    """A trace in the object form."""
    path.write_text(json.dumps({"traceEvents": events} | around))
    return path


def parsed(text: bytes, piece: int = 1 << 20, scanner: EventScanner | None = None) -> ParsedFile:
    """Parse a document that arrives in pieces of `piece` bytes."""
    return parse(pieces(text, piece), DamageReport("trace.json"), scanner=scanner)


def pieces(text: bytes, size: int) -> Iterator[bytes]:
    for at in range(0, len(text), size):
        yield text[at : at + size]


def rows(model: Trace, *, args: bool = True) -> list[tuple[Any, ...]]:
    """The slices as a multiset."""
    texts = {name: object for name, kind in COLUMNS.items() if kind == "category"}
    names = [name for name in COLUMNS if args or name != "args"]
    return sorted(map(tuple, model.slices.astype(texts)[names].to_numpy().tolist()))
