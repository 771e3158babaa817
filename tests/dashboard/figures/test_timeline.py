from hvdtune.dashboard.data import describe_run
from hvdtune.dashboard.figures.theme import DARK, LIGHT
from hvdtune.dashboard.figures.timeline import timeline_figure
from hvdtune.dashboard.window import Drawing, View, draw_window

from ..synthetic import training_trace


def _figure(theme=LIGHT):
    return timeline_figure(draw_window(describe_run("run", training_trace()), View(2)), theme)


def test_each_phase_is_one_trace_with_durations_in_ms():
    bars = {trace.name: trace for trace in _figure().data if trace.type == "bar"}
    assert list(bars) == [
        "step", "bucket", "negotiate", "queue", "communicate", "pack", "reduce", "exchange",
        "unpack",
    ]  # fmt: skip
    assert set(bars["exchange"].x.round(6)) == {1.5}
    assert "ms" in bars["exchange"].hovertemplate


def test_a_name_with_markup_is_escaped_in_labels_and_hover():
    figure = _figure()
    labels = "".join(figure.layout.yaxis.labelalias.values())
    hovers = "".join(text for trace in figure.data for pair in trace.customdata for text in pair)
    assert "&lt;img" in labels
    assert "<" not in labels + hovers


def test_step_begins_are_marked_with_their_label():
    assert [mark.text for mark in _figure().layout.annotations] == ["step 1"]


def test_the_two_themes_differ_in_ink():
    assert _figure(LIGHT).layout.font.color != _figure(DARK).layout.font.color


def test_an_empty_drawing_is_a_figure_without_bars():
    assert len(timeline_figure(Drawing(), LIGHT).data) == 0
