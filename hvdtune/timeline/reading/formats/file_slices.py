"""What a reader makes of one file."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from hvdtune.timeline.model.slices import File


@dataclass
class FileSlices:
    """One file, or the files that one job of hvdtune's left.

    Attributes:
        frame: the model's columns but `file`, times as in the file, rows in any order.
        origin_unix_ns: the file's time 0.
    """

    file: File
    frame: pd.DataFrame
    origin_unix_ns: int | None
    ranks: dict[int, dict[str, Any]] = field(default_factory=dict)
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


def categorical(codes: NDArray[Any], texts: list[str]) -> pd.Categorical:
    """Numbers of texts as categories; texts that are not used are none."""
    used = np.flatnonzero(np.bincount(codes, minlength=1)) if len(codes) else np.empty(0, np.intp)
    place = np.zeros(int(used[-1]) + 1 if len(used) else 1, np.int32)
    place[used] = np.arange(len(used), dtype=np.int32)
    categories = pd.Index([texts[code] for code in used.tolist()], dtype="str")
    return pd.Categorical.from_codes(place[codes], categories=categories, validate=False)


def categories_of(values: list[str], index: NDArray[Any]) -> pd.Categorical:
    """The text of each row, from a few values (which may be equal) and the one of each row."""
    numbers: dict[str, int] = {}
    codes = np.array([numbers.setdefault(value, len(numbers)) for value in values], np.int32)
    return categorical(codes[index] if len(codes) else codes, list(numbers))
