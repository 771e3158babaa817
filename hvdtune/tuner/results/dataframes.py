"""A study as tables: its trials and its pairs, for programs that are not ours."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
import pandas as pd

from hvdtune.core.config.knobs import Value
from hvdtune.errors import StudyError
from hvdtune.tuner.files import replace_file
from hvdtune.tuner.stats.estimates import to_percent
from hvdtune.tuner.storage.pair_log import Pair
from hvdtune.tuner.storage.trial import StudyView, TrialView

Format = Literal["csv", "json", "parquet"]
FORMATS: Final = ("csv", "json", "parquet")
_FLOAT_UNITS: Final = ("_percent", "_ratio", "_ms")
_DTYPES: Final[Mapping[type, str]] = {
    bool: "boolean", int: "Int64", float: "Float64", str: "string"
}  # fmt: skip


def trial_table(
    trials: Sequence[TrialView], default: Mapping[str, Value] | None = None
) -> pd.DataFrame:
    """One row per trial.

    Columns: trial, state, gain_percent and stderr_percent (empty where nothing was measured),
    pairs, reason, is_duplicate, by, began and ended (UTC), and each knob as knob.NAME. The knobs
    of `default` have a column even where no trial has them.
    """
    rows = [
        {
            "trial": trial.number,
            "state": trial.state,
            "gain_percent": trial.gain_percent,
            "stderr_percent": trial.stderr_percent,
            "pairs": trial.pairs,
            "reason": trial.reason,
            "is_duplicate": trial.is_duplicate,
            "by": trial.by,
            "began": trial.began_unix,
            "ended": trial.ended_unix,
            **_knobs("knob", trial.setting),
        }
        for trial in trials
    ]
    columns = ["trial", "state", "gain_percent", "stderr_percent", "pairs", "reason",
               "is_duplicate", "by", "began", "ended"]  # fmt: skip
    return _frame(rows, columns, _knobs("knob", default or {}), times=("began", "ended"))


def pair_table(pairs: Sequence[Pair], default: Mapping[str, Value] | None = None) -> pd.DataFrame:
    """One row per measured pair, in the order of measurement.

    Columns: launch, phase, trial (empty where it belongs to none), gain_percent, log_ratio,
    setting_step_ms, reference_step_ms, steps, order, set_aside (whether it was measured again,
    because something else happened meanwhile), by, finished (UTC), and each knob as knob.NAME for
    the setting and reference.NAME for what it was compared with. The knobs of `default` have
    columns even where there is no pair.
    """
    rows = [
        {
            "launch": pair.launch,
            "phase": pair.phase,
            "trial": pair.trial,
            "gain_percent": to_percent(pair.over_default),
            "log_ratio": pair.log_ratio,
            "setting_step_ms": pair.setting_step_ms,
            "reference_step_ms": pair.reference_step_ms,
            "steps": pair.steps,
            "order": pair.order,
            "set_aside": bool(pair.set_aside),
            "by": pair.by,
            "finished": pair.t_unix,
            **_knobs("knob", pair.setting),
            **_knobs("reference", pair.reference),
        }
        for pair in pairs
    ]
    columns = ["launch", "phase", "trial", "gain_percent", "log_ratio", "setting_step_ms",
               "reference_step_ms", "steps", "order", "set_aside", "by", "finished"]  # fmt: skip
    knobs = {**_knobs("knob", default or {}), **_knobs("reference", default or {})}
    return _frame(rows, columns, knobs, times=("finished",))


def write_tables(
    view: StudyView, document: Mapping[str, Any], target: Path, kind: Format
) -> list[Path]:
    """Write a study to files whose names begin with `target`; returns them.

    CSV and parquet are two files, TARGET-trials and TARGET-pairs; JSON is one, TARGET.json, which
    holds `document` and the pairs. Raises StudyError when they cannot be written.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if kind == "json":
            path = target.with_name(target.name + ".json")
            pairs = msgspec.to_builtins(view.pairs)
            replace_file(path, json.dumps({**document, "pairs": pairs}, indent=1) + "\n")
            return [path]
        tables = {
            "trials": trial_table(view.trials, view.default),
            "pairs": pair_table(view.pairs, view.default),
        }
        written = []
        for name, table in tables.items():
            path = target.with_name(f"{target.name}-{name}.{kind}")
            if kind == "csv":
                replace_file(path, table.to_csv(index=False))
            else:
                table.to_parquet(path, index=False)
            written.append(path)
    except OSError as error:
        raise StudyError(f"cannot write {error.filename or target}: {error.strerror}") from error
    return written


def _knobs(prefix: str, setting: Mapping[str, Value]) -> dict[str, Value]:
    return {f"{prefix}.{name}": value for name, value in setting.items()}


def _frame(
    rows: Sequence[Mapping[str, Any]],
    columns: list[str],
    knobs: Mapping[str, Value],
    *,
    times: Sequence[str],
) -> pd.DataFrame:
    frame = pd.DataFrame(rows) if rows else pd.DataFrame(columns=columns)
    unknown = {name: _DTYPES[type(knobs[name])] for name in knobs if name not in frame}
    for name, dtype in unknown.items():
        frame[name] = pd.Series(pd.NA, index=frame.index, dtype=dtype)
    for name in times:
        # Whole nanoseconds: pandas would round UNIX seconds in float64.
        stamps = [None if _is_missing(value) else round(value * 1e9) for value in frame[name]]
        frame[name] = pd.to_datetime(pd.Series(stamps, dtype="Int64"), unit="ns", utc=True)
    # By the type of the values, so that a column of 1.0 or of nothing has no other than one of 1.5.
    floats = {name for row in rows for name, value in row.items() if isinstance(value, float)}
    floats |= {name for name in columns if name.endswith(_FLOAT_UNITS)}
    floats.difference_update(times)
    return frame.convert_dtypes().astype({**unknown, **dict.fromkeys(floats, "Float64")})


def _is_missing(value: float | None) -> bool:
    return value is None or math.isnan(value)
