import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from hvdtune.errors import StudyError
from hvdtune.tuner.results.dataframes import pair_table, trial_table, write_tables
from hvdtune.tuner.storage.study_reader import read_study
from hvdtune.tuner.storage.trial import StudyView, TrialView


def test_trials_are_rows_with_their_knobs(finished_run: Path) -> None:
    view = read_study(finished_run)
    table = trial_table(view.trials)
    assert len(table) == len(view.trials)
    assert table["knob.cycle_time_ms"].tolist() == [t.setting["cycle_time_ms"] for t in view.trials]
    assert table["began"].dt.tz is not None


def test_pairs_are_rows_with_both_settings(finished_run: Path) -> None:
    view = read_study(finished_run)
    table = pair_table(view.pairs)
    assert table["phase"].tolist() == [pair.phase for pair in view.pairs]
    references = [pair.reference["cycle_time_ms"] for pair in view.pairs]
    assert table["reference.cycle_time_ms"].tolist() == references


def test_pairs_say_whether_they_were_set_aside(finished_run: Path) -> None:
    pair, *_ = read_study(finished_run).pairs
    table = pair_table([pair, replace(pair, set_aside="a pause")])
    assert table["set_aside"].tolist() == [False, True]
    assert table["set_aside"].dtype == "boolean"


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_tables_come_back_from_files(finished_run: Path, tmp_path: Path, kind: str) -> None:
    view = read_study(finished_run)
    trials, pairs = write_tables(view, {}, tmp_path / "out" / "x", kind)
    assert [trials.name, pairs.name] == [f"x-trials.{kind}", f"x-pairs.{kind}"]
    read = getattr(pd, f"read_{kind}")
    assert read(pairs)["log_ratio"].tolist() == [pair.log_ratio for pair in view.pairs]
    assert len(read(trials)) == len(view.trials)


def test_json_is_one_document_with_the_pairs(finished_run: Path, tmp_path: Path) -> None:
    view = read_study(finished_run)
    (path,) = write_tables(view, {"v": 1}, tmp_path / "x", "json")
    document = json.loads(path.read_text())
    assert document["v"] == 1
    assert [pair["log_ratio"] for pair in document["pairs"]] == [p.log_ratio for p in view.pairs]


DEFAULT = {"cycle_time_ms": 1.0, "chunk_bytes": 64, "zero_copy": True, "transport": "tcp"}
DTYPES = ["Float64", "Int64", "boolean", "string"]


@pytest.mark.parametrize(
    ("table", "prefixes"), [(trial_table, ["knob"]), (pair_table, ["knob", "reference"])]
)
def test_a_study_without_trials_has_tables_without_rows(
    table: Callable[..., pd.DataFrame], prefixes: list[str]
) -> None:
    empty = table((), DEFAULT)
    assert len(empty) == 0
    for prefix in prefixes:
        assert [str(empty[f"{prefix}.{name}"].dtype) for name in DEFAULT] == DTYPES


def test_a_trial_without_a_setting_has_missing_values() -> None:
    table = trial_table(
        [TrialView(0, "waiting", {}, None, None, 0, "", False, None, None)], DEFAULT
    )
    knobs = table[[f"knob.{name}" for name in DEFAULT]]
    assert knobs.isna().all(axis=None)
    assert [str(dtype) for dtype in knobs.dtypes] == DTYPES


def test_what_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    empty = StudyView((), (), None, None, None)
    with pytest.raises(StudyError, match="cannot write"):
        write_tables(empty, {}, tmp_path / "file" / "x", "csv")


def test_columns_have_one_type_whatever_was_measured() -> None:
    nothing = TrialView(0, "pruned", {"cycle_time_ms": 1.0}, None, None, 0, "", False, None, None)
    (dtypes,) = {
        tuple(trial_table([trial]).dtypes[["gain_percent", "stderr_percent", "knob.cycle_time_ms"]])
        for trial in (nothing, replace(nothing, gain_percent=2.0, stderr_percent=0.5))
    }
    assert {str(dtype) for dtype in dtypes} == {"Float64"}
