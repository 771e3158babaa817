"""The page's tables: rows from the run, and what each column is called and how it is shown."""

from typing import Any

import pandas as pd

from hvdtune.dashboard.blocks import of_names, of_numbers, of_sizes, of_times, text_column
from hvdtune.dashboard.study import knob_names, knob_text
from hvdtune.timeline.analysis.metrics import tensors

_TENSOR_HEADERS = {
    "tensor": "Tensor",
    "dtype": "Type and shape",
    "operation": "Operation",
    "bytes": "Size",
    "count": "Count",
    "negotiate_p50_ms": "Negotiate, p50 (ms)",
    "negotiate_p95_ms": "Negotiate, p95 (ms)",
    "queue_p50_ms": "Queue, p50 (ms)",
    "queue_p95_ms": "Queue, p95 (ms)",
    "communicate_p50_ms": "Communicate, p50 (ms)",
    "communicate_p95_ms": "Communicate, p95 (ms)",
    "done_p50_ms": "Announced to done, p50 (ms)",
    "done_p95_ms": "Announced to done, p95 (ms)",
    "bucket_bytes": "Size of its bucket, median",
    "last_rank": "Announced last by rank",
    "last_rank_percent": "How often it is last (%)",
    "late_p95_ms": "Late, p95 (ms)",
    "late_ms": "Late in total (ms)",
}
# What makes room for the others where not all columns fit: the least asked for first.
_ASIDE = {
    "count": 1,
    "dtype": 2,
    "operation": 2,
    "bucket_bytes": 2,
    "late_ms": 2,
    "last_rank_percent": 1,
}
_ASIDE |= {f"{phase}_p50_ms": 1 for phase in ("negotiate", "communicate")}
_ASIDE |= {f"{phase}_p95_ms": 3 for phase in ("negotiate", "queue", "communicate", "done")}
_ASIDE |= {"queue_p50_ms": 3}
_MOST_NAME_PX = 220  # leaves room for the sizes on a telephone
_TRIAL_HEADERS = {
    "trial": "Trial",
    "state": "State",
    "believed_percent": "Estimate over launches (%)",
    "believed_low_percent": "Low (%)",
    "believed_high_percent": "High (%)",
    "gain_percent": "Measured (%)",
    "spread_percent": "+/- 2 s.e. (%)",
    "pairs": "Pairs",
    "reason": "Reason",
}


def tensor_columns(rows: pd.DataFrame) -> list[dict[str, Any]]:
    """Column definitions for `tensor_rows`; the first column names the tensor."""
    columns = [_column(field, header) for field, header in _TENSOR_HEADERS.items()]
    columns[0] |= of_names(rows["tensor"], least_px=160, most_px=_MOST_NAME_PX)
    columns[0] |= {"pinned": "left", "tooltipField": "about"}
    return columns


def tensor_rows(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of a `tensor_table` with the fields of `tensor_columns`, and what tells of them."""
    table = table.copy()
    for name in map(str, table.columns):
        if name.endswith("_us"):
            table[f"{name.removesuffix('_us')}_ms"] = table[name] / 1000
    about = [tensors.meaning(str(name)) or str(name) for name in table["tensor"]]
    table = table[list(_TENSOR_HEADERS)].assign(about=about)
    return table.assign(last_rank=table["last_rank"].where(table["last_rank"] >= 0))


def trial_columns(trials: pd.DataFrame) -> list[dict[str, Any]]:
    """Column definitions of the trial table; each knob of the study is a column."""
    columns = [_column(field, header) for field, header in _TRIAL_HEADERS.items()]
    for column in columns:
        if str(column["field"]).endswith("_percent"):
            column |= of_numbers(2)
        if column["field"] == "reason":
            column |= {"minWidth": 180, "tooltipField": "reason"}
    return columns + [
        {"field": f"knob_{position}", "headerName": knob, "headerTooltip": knob, "minWidth": 130}
        for position, knob in enumerate(knob_names(trials))
    ]


def trial_rows(trials: pd.DataFrame) -> pd.DataFrame:
    """Trials with one column per knob, in the order of `trial_columns`."""
    rows = trials[list(_TRIAL_HEADERS)].copy()
    for position, knob in enumerate(knob_names(trials)):
        rows[f"knob_{position}"] = [
            knob_text(knob, values.get(knob, "")) for values in trials["values"]
        ]
    return rows


def _column(field: str, header: str) -> dict[str, Any]:
    column = text_column(field, header, _ASIDE.get(field, 0))
    if field in {"tensor", "dtype", "operation", "state", "reason"}:
        return column
    if field.endswith("bytes"):
        return column | of_sizes()
    return column | (of_times() if field.endswith("_ms") else of_numbers(0))
