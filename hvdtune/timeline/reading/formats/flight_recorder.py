"""Dumps of PyTorch's Flight Recorder: what each rank was doing when its job stood."""

import re
from typing import Any

import numpy as np
import pandas as pd

from hvdtune.timeline.model.slices import kind_column
from hvdtune.timeline.reading.dumps.flight_recorder import KEY, is_told
from hvdtune.timeline.reading.formats.frame import kinds_of_frame
from hvdtune.timeline.reading.json.parsed import ParsedFile

NAME = "flight-recorder"
NAMES_TENSORS = False
GAP = (
    "a Flight Recorder dump has a job's last collectives but no steps, so it shows hangs, not "
    "slowness"
)
infer_events = None
_COLLECTIVE = re.compile(
    r"\w+:_?(all_?reduce|broadcast|all_?gather|reduce_?scatter|all_?to_?all|barrier)", re.IGNORECASE
)


def recognizes(parsed: ParsedFile) -> bool:
    """Whether PyTorch wrote it."""
    return is_told(parsed.around.get(KEY))


def finish(frame: pd.DataFrame, parsed: ParsedFile) -> dict[int, dict[str, Any]]:
    """Fills in what the format means; the dump is what is known of its rank."""
    frame["kind"] = kind_column(kinds_of_frame(frame, kind))
    rank = _rank(parsed)
    frame["rank"] = np.full(len(frame), rank, np.int32)
    frame["tensor"] = frame["name"]
    said = parsed.around[KEY]
    ranks = [0, *(rank for each in said["groups"].values() for rank in each["ranks"])]
    return {rank: {"size": max(*ranks, rank) + 1, KEY: said}}


def kind(name: str, category: str) -> str:
    """The kind of events of a name and a category; see `slices.KIND_TEXTS`."""
    found = _COLLECTIVE.match(name)
    return found[1].upper().replace("_", "") if found else ""


def rank_of_track(parsed: ParsedFile) -> list[int]:
    """The file's."""
    return [_rank(parsed)] * len(parsed.tracks.pid)


def origin_unix_ns(parsed: ParsedFile) -> int | None:
    """Times are those of day."""
    return 0


def _rank(parsed: ParsedFile) -> int:
    rank: int = parsed.around[KEY]["rank"]
    return rank if 0 <= rank < 2**31 else -1
