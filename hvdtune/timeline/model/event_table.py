"""The table of a trace's events."""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from hvdtune.timeline.model.ordering import time_order
from hvdtune.timeline.model.schema import INT_COLUMNS, KIND_NAMES


def make_events(columns: dict[str, NDArray[Any]], names: Sequence[str]) -> pd.DataFrame:
    """Build `trace.Trace.events` from unordered columns.

    Args:
        columns: one array per column of `COLUMNS`, which are taken from them; kind holds indices
            into `KIND_NAMES`, name indices into `names`.
        names: texts, each once.
    """
    columns["name"], categories = _by_text(columns["name"], names)
    # Of equal begins an enclosing span comes first, and the order is always the same.
    ties = [columns[key] for key in ("kind", "name", "seq", "bucket", "arg")]
    order = time_order(columns["begin_ns"], [columns["rank"], -columns["end_ns"], *ties])
    del ties

    def column(name: str, dtype: type) -> NDArray[Any]:
        # One after the other, since each may be large.
        ordered: NDArray[Any] = columns.pop(name)[order].astype(dtype, copy=False)
        return ordered

    kinds = pd.Index(KIND_NAMES, dtype="str")
    frame: dict[str, Any] = {
        "rank": column("rank", np.int32),
        "kind": pd.Categorical.from_codes(cast("Any", column("kind", np.int8)), categories=kinds),
        "name": pd.Categorical.from_codes(
            cast("Any", column("name", np.int32)), categories=categories
        ),
    }
    frame |= {name: column(name, np.int64) for name in INT_COLUMNS}
    return pd.DataFrame(frame, copy=False)


def _by_text(codes: NDArray[Any], names: Sequence[str]) -> tuple[NDArray[np.int32], pd.Index]:
    """Numbers of texts in the order of these, and the texts that are used."""
    used = np.flatnonzero(np.bincount(codes)) if len(codes) else np.empty(0, np.intp)
    texts = [names[index] for index in used.tolist()]
    by_text = np.argsort(np.array(texts, dtype=object), kind="stable")
    place = np.zeros(int(used[-1]) + 1 if len(used) else 1, np.int32)
    place[used[by_text]] = np.arange(len(used), dtype=np.int32)
    return place[codes], pd.Index([texts[index] for index in by_text.tolist()], dtype="str")
