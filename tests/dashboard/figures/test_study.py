import numpy as np

from hvdtune.dashboard.figures.theme import LIGHT
from hvdtune.dashboard.figures.trials import trials_figure
from hvdtune.dashboard.figures.verification import verification_figure
from hvdtune.dashboard.study import open_study

from ..studies import write_study


def test_each_state_is_a_trace_and_a_failed_trial_tells_its_reason(tmp_path):
    write_study(tmp_path, reason="<script>alert(1)</script>")
    study = open_study(tmp_path)
    figure = trials_figure(study.trials, study.noise_floor_percent, LIGHT)
    traces = {trace.name: trace for trace in figure.data}
    assert list(traces) == ["complete", "pruned", "failed"]
    assert np.isclose(traces["complete"].error_y.array[0], 0.8)
    assert traces["failed"].customdata[0][1] == "rank 1 was lost"
    assert traces["pruned"].customdata[0][1] == "&lt;script&gt;alert(1)&lt;/script&gt;"


def test_the_noise_floor_is_a_band_around_zero(tmp_path):
    write_study(tmp_path)
    study = open_study(tmp_path)
    band = trials_figure(study.trials, 0.6, LIGHT).layout.shapes[0]
    assert (band.y0, band.y1) == (-0.6, 0.6)


def test_an_unknown_noise_floor_draws_no_band(tmp_path):
    write_study(tmp_path)
    shapes = trials_figure(open_study(tmp_path).trials, None, LIGHT).layout.shapes
    assert [shape.type for shape in shapes] == ["line"]


def test_verification_pairs_are_grouped_by_launch_with_the_interval_as_band(tmp_path):
    write_study(tmp_path)
    study = open_study(tmp_path)
    figure = verification_figure(study.verification, study.verdict.interval_percent, LIGHT)
    assert [trace.name for trace in figure.data] == ["launch 2", "launch 3"]
    assert (figure.layout.shapes[0].y0, figure.layout.shapes[0].y1) == (6.1, 8.4)
