"""What a JSON file holds, before anybody asks what it means."""

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from hvdtune.timeline.reading.json.assemble import Tracks


@dataclass(frozen=True)
class ParsedFile:
    """One file, or one of an archive.

    Attributes:
        path: what it is called in messages.
        table: rows of `begin_end_pairing.SCHEMA` in no order, perhaps without columns that nobody
            asked for.
        texts: text of each number.
        around: what surrounds the events in the file.
        counts, warnings: as in `Model`.
    """

    path: str
    table: pa.Table
    texts: list[str]
    tracks: Tracks
    around: dict[str, Any] = field(default_factory=dict)
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
