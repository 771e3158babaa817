"""Answers of NCCL's RAS: what ranks had called at one moment, and nothing on a clock."""

from typing import Any

import pandas as pd

from hvdtune.timeline.reading.dumps.ras import KEY, is_told
from hvdtune.timeline.reading.json.parsed import ParsedFile

NAME = "nccl-ras"
NAMES_TENSORS = False
GAP = "an NCCL RAS report has counts of collectives but no times"
infer_events = None


def recognizes(parsed: ParsedFile) -> bool:
    """Whether NCCL's RAS wrote it."""
    return is_told(parsed.around.get(KEY))


def finish(frame: pd.DataFrame, parsed: ParsedFile) -> dict[int, dict[str, Any]]:
    """The answer is kept with rank 0, whoever was asked."""
    said = parsed.around[KEY]
    sizes = [each["size"] for each in said["communicators"]]
    return {0: {"size": max(sizes, default=0), KEY: said}}


def kind(name: str, category: str) -> str:
    """It has no events."""
    return ""


def rank_of_track(parsed: ParsedFile) -> list[int]:
    """It has no threads."""
    return [-1] * len(parsed.tracks.pid)


def origin_unix_ns(parsed: ParsedFile) -> int | None:
    """It has no clock."""
    return 0
