from hvdtune.dashboard.study import open_study
from hvdtune.dashboard.tables import tensor_columns, tensor_rows, trial_columns, trial_rows

from .studies import write_study
from .synthetic import training_trace


def _fields(columns):
    for column in columns:
        yield from _fields(column["children"]) if "children" in column else [column["field"]]


def test_every_tensor_column_has_its_values():
    rows = tensor_rows(training_trace(tensors=4))
    assert list(rows.columns) == list(_fields(tensor_columns()))
    assert len(rows) == 4


def test_every_trial_column_has_its_values_and_knobs_are_columns(tmp_path):
    write_study(tmp_path)
    trials = open_study(tmp_path).trials
    assert list(trial_rows(trials).columns) == list(_fields(trial_columns(trials)))
    assert trial_columns(trials)[-1]["headerName"] == "cycle_time_ms"
