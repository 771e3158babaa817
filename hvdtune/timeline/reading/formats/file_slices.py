"""What a reader makes of one file."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from hvdtune.timeline.model.other_slices import UnsortedOthers
from hvdtune.timeline.model.slices import File


@dataclass
class FileSlices:
    """One file, or the files that one job of hvdtune's left.

    Attributes:
        frame: the model's columns but `file`, times as in the file, rows in any order.
        others: slices that are not in `frame`, since they are only drawn.
        origin_unix_ns: the file's time 0.
        ranks: as in `Trace`.
        meta: what else is known of the trace; see `Trace.meta`.
    """

    file: File
    frame: pd.DataFrame
    origin_unix_ns: int | None
    ranks: dict[int, dict[str, Any]] = field(default_factory=dict)
    meta: dict[str, Any] = field(default_factory=dict)
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    others: UnsortedOthers | None = None

    @property
    def names_no_rank(self) -> bool:
        """Whether nothing says which rank any of it is of."""
        places = [] if self.others is None else self.others.threads
        return bool((self.frame["rank"].to_numpy() == -1).all()) and all(
            place.rank == -1 for place in places
        )

    def name_rank(self, rank: int) -> None:
        """Takes all of it for this rank's, which nothing in it says."""
        self.frame["rank"] = np.full(len(self.frame), rank, np.int32)
        self.ranks = {rank: self.ranks.get(-1, {})}
        if self.others is not None:
            self.others.threads = [place._replace(rank=rank) for place in self.others.threads]

    def shift(self, by_ns: int) -> None:
        """Moves all times."""
        for key in ("begin_ns", "end_ns"):
            self.frame[key] = self.frame[key].to_numpy() + by_ns
        if self.others is not None:
            self.others.shift(by_ns)

    def first_ns(self) -> list[int]:
        """The first begin, if there is any."""
        begins = [self.frame["begin_ns"].to_numpy()]
        begins += [] if self.others is None else [self.others.columns["begin_ns"]]
        return [int(begin.min()) for begin in begins if len(begin)]
