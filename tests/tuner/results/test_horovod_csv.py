import csv
from pathlib import Path

from hvdtune.tuner.results.horovod_csv import render_table, write_table
from hvdtune.tuner.storage.study_store import TrialView

_SETTING = {
    "fusion_threshold_bytes": 6 << 20,
    "cycle_time_ms": 0.5,
    "cache_enabled": True,
    "hierarchical_allreduce": False,
    "hierarchical_allgather": False,
    "torus_allreduce": False,
    "chunk_bytes": 65536,
}


def trial(**changes) -> TrialView:
    fields = {
        "number": 0,
        "state": "complete",
        "setting": _SETTING,
        "gain_percent": 3.25,
        "stderr_percent": 1.5,
        "pairs": 8,
        "reason": "",
        "is_duplicate": False,
        "began_unix": None,
        "ended_unix": None,
    }
    return TrialView(**{**fields, **changes})


def test_the_first_columns_are_horovods() -> None:
    header, row = render_table([trial()]).splitlines()
    assert header.split(",")[:7] == [
        "hierarchical_allreduce",
        "hierarchical_allgather",
        "torus_allreduce",
        "cache_enabled",
        "cycle_time_ms",
        "tensor_fusion_threshold",
        "score",
    ]
    assert row == "0,0,0,1,0.5,6,3.250,1.500,8,complete,65536"


def test_a_trial_without_a_measurement_has_no_score_and_one_that_runs_no_row(
    tmp_path: Path,
) -> None:
    failed = trial(state="failed", gain_percent=None, stderr_percent=None, pairs=0)
    write_table([failed, trial(state="running")], tmp_path / "log.csv")
    [row] = csv.DictReader((tmp_path / "log.csv").read_text().splitlines())
    assert (row["score"], row["state"], row["chunk_bytes"]) == ("", "failed", "65536")
