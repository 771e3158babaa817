import numpy as np
import pandas as pd
import pytest

from hvdtune.dashboard.figures.search import (
    incumbent_figure,
    knobs_figure,
    knobs_figures,
    study_of,
)
from hvdtune.dashboard.figures.theme import LIGHT
from hvdtune.dashboard.figures.trials import trials_figure
from hvdtune.dashboard.figures.verification import verification_figure
from hvdtune.dashboard.study import open_study
from hvdtune.tuner.stats.posterior import Belief

from ..studies import write_study


def test_each_state_is_a_trace_and_a_failed_trial_tells_its_reason(tmp_path):
    write_study(tmp_path, reason="<script>alert(1)</script>")
    study = open_study(tmp_path)
    figure = trials_figure(study.trials, study.noise_floor_percent, LIGHT)
    traces = {trace.name: trace for trace in figure.data}
    assert list(traces) == ["A/A noise floor +/- 0.60 %", "complete", "pruned", "failed"]
    assert np.isclose(traces["complete"].error_y.array[0], 0.8)
    assert traces["failed"].customdata[0][1] == "rank 1 was lost"
    assert traces["pruned"].customdata[0][1] == "&lt;script&gt;alert(1)&lt;/script&gt;"


def test_what_is_believed_has_the_bar_and_the_reading_is_a_cross_beside_it(tmp_path):
    write_study(tmp_path, beliefs={1: Belief(-0.5, -2.0, 1.5)})
    figure = trials_figure(open_study(tmp_path).trials, None, LIGHT)
    traces = {trace.name: trace for trace in figure.data}
    assert list(traces["measured"].x) == [0, 1] and np.allclose(traces["measured"].y, [5.0, -3.0])
    default, other = traces["complete"], traces["pruned"]
    assert (default.y[0], default.error_y.array[0], default.error_y.arrayminus[0]) == (0, 0, 0)
    shown = [other.y[0], other.error_y.array[0], other.error_y.arrayminus[0]]
    assert np.allclose(shown, [-0.5, 2.0, 1.5])
    assert other.customdata[0][0].startswith(
        "estimate over launches -0.50 %, -2.00 to +1.50 %; measured -3"
    )


@pytest.mark.parametrize(
    ("floor_percent", "drawn"),
    [
        pytest.param(0.6, [("rect", -0.6, 0.6), ("line", 0, 0)], id="a band around zero"),
        pytest.param(None, [("line", 0, 0)], id="no band where it is unknown"),
    ],
)
def test_the_noise_floor_is(tmp_path, floor_percent, drawn):
    write_study(tmp_path)
    shapes = trials_figure(open_study(tmp_path).trials, floor_percent, LIGHT).layout.shapes
    assert [(shape.type, shape.y0, shape.y1) for shape in shapes] == drawn


def test_verification_pairs_are_grouped_by_launch_with_the_interval_as_band(tmp_path):
    write_study(tmp_path)
    study = open_study(tmp_path)
    interval = study.verdict.interval_percent
    figure = verification_figure(study.verification, interval, LIGHT, "over 2 launches")
    band = "95 % interval of the gain over 2 launches, +6.10 to +8.40 %"
    assert [trace.name for trace in figure.data] == [band, "launch 2", "launch 3"]
    assert figure.layout.xaxis.tickvals == (1, 2, 3, 4)
    assert (figure.layout.shapes[0].y0, figure.layout.shapes[0].y1) == (6.1, 8.4)


def searched():
    """Trials whose gain follows one of two knobs."""
    return pd.DataFrame(
        [
            {
                "trial": number,
                "state": "complete" if number != 3 else "failed",
                "gain_percent": 2.0 * (number % 5) - 1,
                "spread_percent": 0.5 if number != 9 else None,
                "steps": 100 * (number + 1),
                "values": {
                    "cycle_time_ms": [0.1, 1.0, 5.0, 20.0, 50.0][number % 5],
                    "<b>chunk</b>": 2 ** (16 + number % 3),
                    "cache_enabled": bool(number % 2),
                    "channels": 1,
                },
            }
            for number in range(20)
        ]
    )


def test_the_best_so_far_never_falls_and_starts_at_the_default():
    line = incumbent_figure(searched(), LIGHT).data[0]
    assert list(line.x[:4]) == [100, 200, 300, 500]
    assert (np.diff(line.x) > 0).all()
    assert line.y[0] == 0.0
    assert (np.diff(line.y) >= 0).all()
    later = searched().assign(steps=list(range(2000, 0, -100)))
    assert (np.diff(incumbent_figure(later, LIGHT).data[0].y) >= 0).all()
    # The last of those with an error, less that.
    assert line.y[-1] == 6.5


def test_where_no_trial_was_faster_the_default_is_the_best_so_far():
    figure = incumbent_figure(searched().assign(gain_percent=-7.5), LIGHT)
    assert not figure.data[0].y.any()
    assert "No trial was faster than the default" in figure.layout.annotations[0].text
    assert not incumbent_figure(searched(), LIGHT).layout.annotations


@pytest.mark.parametrize(
    ("trials", "every"), [(0, 1), (4, 1), (13, 1), (14, 2), (41, 5), (200, 20)]
)
def test_ticks_of_the_trial_axis_are_whole_numbers(tmp_path, trials, every):
    write_study(tmp_path)
    one = open_study(tmp_path).trials.head(1)
    table = one.loc[one.index.repeat(trials)].assign(trial=range(trials))
    assert trials_figure(table, None, LIGHT).layout.xaxis.dtick == every


def test_knobs_that_are_always_alike_are_left_out():
    study = study_of(searched())
    assert set(study.trials[0].params) == {
        "cycle_time_ms", "&lt;b&gt;chunk&lt;/b&gt;", "cache_enabled",
    }  # fmt: skip
    assert len(study.trials) == 19
    assert study_of(searched().head(3)) is None


@pytest.mark.parametrize("name", list(knobs_figures()))
def test_knobs_are_drawn_against_the_gain(name):
    figure = knobs_figure(name, searched(), LIGHT)
    assert figure.data
    assert figure.layout.font.color == LIGHT.ink
    assert "<b>" not in figure.to_json().replace("<br>", "")


def test_the_knob_that_matters_is_the_most_important():
    bars = knobs_figure("importances", searched(), LIGHT).data[0]
    assert bars.y[list(bars.x).index(max(bars.x))] == "cycle_time_ms"


@pytest.mark.parametrize("name", list(knobs_figures()))
def test_too_few_trials_make_an_empty_figure(name):
    assert len(knobs_figure(name, searched().head(2), LIGHT).data) == 0


def test_sizes_are_on_axes_in_mib():
    trials = searched()
    for index, values in enumerate(trials["values"]):
        values["fusion_threshold_bytes"] = 2 ** (20 + index % 4)
    study = study_of(trials)
    assert {trial.params["fusion_threshold (MiB)"] for trial in study.trials} == {1, 2, 4, 8}
    assert not any("bytes" in knob for trial in study.trials for knob in trial.params)
