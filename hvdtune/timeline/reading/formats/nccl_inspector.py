"""Logs of NCCL's Inspector: how long each collective's kernel ran on a rank."""

from typing import Any

import numpy as np
import pandas as pd

from hvdtune.timeline.model.schema import COLLECTIVES
from hvdtune.timeline.model.slices import categories_of, kind_column
from hvdtune.timeline.reading.dumps.inspector import KEY
from hvdtune.timeline.reading.formats.frame import kinds_of_frame
from hvdtune.timeline.reading.json.parsed import ParsedFile

NAME = "nccl-inspector"
NAMES_TENSORS = False
GAP = (
    "a log of NCCL's Inspector has collectives but no steps, so it shows late ranks without a cost"
)
infer_events = None


def recognizes(parsed: ParsedFile) -> bool:
    """Whether NCCL's Inspector wrote it."""
    return isinstance(parsed.around.get(KEY), dict)


def finish(frame: pd.DataFrame, parsed: ParsedFile) -> dict[int, dict[str, Any]]:
    """Fills in what the format means; what is known of the ranks."""
    frame["kind"] = kind_column(kinds_of_frame(frame, kind))
    said = parsed.around[KEY]
    rank = _rank(parsed)
    frame["rank"] = np.full(len(frame), rank, np.int32)
    # A collective is known by its communicator, its operation and its number.
    sorts = frame["tid"].astype(str) + " " + frame["name"].astype(str)
    codes, texts = pd.factorize(sorts)
    frame["tensor"] = categories_of([str(text) for text in texts] or [""], codes)
    known = {}
    for key, sort in (("size", int), ("host", str)):
        if isinstance(said.get(key), sort) and said[key]:
            known[key] = said[key]
    return {rank: known}


def kind(name: str, category: str) -> str:
    """The kind of events of a name and a category; see `slices.KIND_TEXTS`."""
    return name.upper() if name.upper() in COLLECTIVES else ""


def rank_of_track(parsed: ParsedFile) -> list[int]:
    """The file's."""
    return [_rank(parsed)] * len(parsed.tracks.pid)


def origin_unix_ns(parsed: ParsedFile) -> int | None:
    """Times are those of day."""
    return 0


def _rank(parsed: ParsedFile) -> int:
    rank = parsed.around[KEY].get("rank")
    return rank if isinstance(rank, int) and 0 <= rank < 2**31 else -1
