from pathlib import Path
from typing import Any

import pytest

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


def test_the_first_columns_are_horovods(tmp_path: Path) -> None:
    write_table([trial()], tmp_path / "log.csv")
    header, _ = (tmp_path / "log.csv").read_text().splitlines()
    assert header.split(",")[:7] == [
        "hierarchical_allreduce",
        "hierarchical_allgather",
        "torus_allreduce",
        "cache_enabled",
        "cycle_time_ms",
        "tensor_fusion_threshold",
        "score",
    ]


_UNMEASURED = {"gain_percent": None, "stderr_percent": None, "pairs": 0}


@pytest.mark.parametrize(
    ("changes", "rows"),
    [
        pytest.param({}, ["0,0,0,1,0.5,6,3.250,1.500,8,complete,65536"], id="complete"),
        pytest.param(
            {"state": "failed", **_UNMEASURED}, ["0,0,0,1,0.5,6,,,0,failed,65536"], id="failed"
        ),
        pytest.param({"state": "running", **_UNMEASURED}, [], id="running"),
    ],
)
def test_a_trial_that_has_ended_is_a_row(changes: dict[str, Any], rows: list[str]) -> None:
    assert render_table([trial(**changes)]).splitlines()[1:] == rows
