"""The page's tables: rows from the run, and what each column is called and how it is shown."""

from typing import Any

import pandas as pd

from hvdtune.dashboard.blocks import of_numbers, of_sizes, of_times, text_column
from hvdtune.dashboard.study import knob_names, knob_text

_TENSOR_GROUPS = {  # header -> (field, header below it)
    "Tensor": (("tensor", "Name"),),
    "What it is": (
        ("dtype", "Type and shape"),
        ("operation", "Operation"),
        ("bytes", "Size"),
        ("count", "Count"),
    ),
    "Negotiate (ms)": (("negotiate_p50_ms", "p50"), ("negotiate_p95_ms", "p95")),
    "Queue (ms)": (("queue_p50_ms", "p50"), ("queue_p95_ms", "p95")),
    "Communicate (ms)": (("communicate_p50_ms", "p50"), ("communicate_p95_ms", "p95")),
    "Announced to done (ms)": (("done_p50_ms", "p50"), ("done_p95_ms", "p95")),
    "Bucket": (("bucket_bytes", "size, median"),),
    "Announced last": (
        ("last_rank", "rank"),
        ("last_rank_percent", "how often (%)"),
        ("late_p95_ms", "late p95 (ms)"),
        ("late_ms", "late in total (ms)"),
    ),
}
_TRIAL_HEADERS = {
    "trial": "Trial",
    "state": "State",
    "believed_percent": "Believed (%)",
    "believed_low_percent": "at least (%)",
    "believed_high_percent": "at most (%)",
    "gain_percent": "Reading (%)",
    "spread_percent": "+/- 2 s.e. (%)",
    "pairs": "Pairs",
    "reason": "Reason",
}


def tensor_columns() -> list[dict[str, Any]]:
    """Column definitions of the per-tensor table; the first column names the tensor."""
    columns: list[dict[str, Any]] = []
    for group, fields in _TENSOR_GROUPS.items():
        members = [_column(field, header) for field, header in fields]
        columns.append({"headerName": group, "children": members})
    columns[0]["children"][0] |= {"pinned": "left", "minWidth": 220, "tooltipField": "tensor"}
    return columns


def tensor_rows(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of a `tensor_table` with the fields of `tensor_columns`."""
    fields = [field for members in _TENSOR_GROUPS.values() for field, _ in members]
    table = table.copy()
    for name in map(str, table.columns):
        if name.endswith("_us"):
            table[f"{name.removesuffix('_us')}_ms"] = table[name] / 1000
    table = table[fields]
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
    column = text_column(field, header)
    if field in {"tensor", "dtype", "operation", "state", "reason"}:
        return column
    if field.endswith("bytes"):
        return column | of_sizes()
    return column | (of_times() if field.endswith("_ms") else of_numbers(0))
