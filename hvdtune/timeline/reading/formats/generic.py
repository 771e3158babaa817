"""Chrome traces of any program: shown as they are."""

import re
from typing import Any

import numpy as np
import pandas as pd

from hvdtune.timeline.reading.json.parsed import ParsedFile

NAME = "chrome"
NAMES_TENSORS = True
GAP = "unknown trace producer: slices are shown, but collectives and steps are not recognized"
infer_events = None
_RANK = re.compile(r"rank[ _-]?([0-9]{1,7})\b", re.IGNORECASE)


def recognizes(parsed: ParsedFile) -> bool:
    """Everything is a Chrome trace that is nothing else."""
    return True


def finish(frame: pd.DataFrame, parsed: ParsedFile) -> dict[int, dict[str, Any]]:
    """Ranks, where titles of processes say them."""
    titles = frame["process"].cat
    found = [int(match[1]) if (match := _RANK.match(text)) else -1 for text in titles.categories]
    frame["rank"] = np.array(found or [-1], np.int32)[titles.codes.to_numpy()]
    return {rank: {} for rank in sorted({*found} - {-1})}


def kind(name: str, category: str) -> str:
    """Nobody knows what other programs mean."""
    return ""


def rank_of_track(parsed: ParsedFile) -> list[int]:
    """The rank that each track is of, -1 where the file does not say."""
    titles = parsed.tracks.processes
    found = (_RANK.match(titles.get(pid, "")) for pid in parsed.tracks.pid)
    return [int(match[1]) if match else -1 for match in found]


def origin_unix_ns(parsed: ParsedFile) -> int | None:
    """Nobody knows."""
    return None
