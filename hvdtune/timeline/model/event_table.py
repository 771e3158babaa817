"""The table of a trace's events."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from hvdtune.timeline.model.ordering import time_order
from hvdtune.timeline.model.schema import INT_COLUMNS, KIND_NAMES


def make_events(columns: Mapping[str, NDArray[Any]], names: Sequence[str]) -> pd.DataFrame:
    """Build `trace.Trace.events` from unordered columns.

    Args:
        columns: one array per column of `COLUMNS`; kind holds indices into `KIND_NAMES`, name
            indices into `names`.
        names: texts, each once.
    """
    used, codes = np.unique(columns["name"], return_inverse=True)
    texts = [names[index] for index in used]
    by_text = np.argsort(np.array(texts, dtype=object), kind="stable")
    rank_of_text = np.empty(len(texts), dtype=np.int64)
    rank_of_text[by_text] = np.arange(len(texts))
    ordered = {**columns, "name": rank_of_text[codes]}
    # Of equal begins an enclosing span comes first, and the order is always the same.
    ties = [ordered[key] for key in ("kind", "name", "seq", "bucket", "arg")]
    order = time_order(ordered["begin_ns"], [ordered["rank"], -ordered["end_ns"], *ties])
    kinds = pd.Index(KIND_NAMES, dtype="str")
    categories = pd.Index([texts[index] for index in by_text], dtype="str")
    kind_codes = ordered["kind"][order].astype(np.int8)
    frame: dict[str, Any] = {
        "rank": ordered["rank"][order].astype(np.int32),
        "kind": pd.Categorical.from_codes(cast("Any", kind_codes), categories=kinds),
        "name": pd.Categorical.from_codes(
            cast("Any", ordered["name"][order]), categories=categories
        ),
    }
    for name in INT_COLUMNS:
        frame[name] = ordered[name][order].astype(np.int64)
    return pd.DataFrame(frame, copy=False)
