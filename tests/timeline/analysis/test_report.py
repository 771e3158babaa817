"""The report's one file."""

import re
from html import escape

import pytest

from hvdtune.timeline import Trace
from hvdtune.timeline.analysis.findings import why
from hvdtune.timeline.analysis.headings import HEADINGS
from hvdtune.timeline.analysis.report import measure, page
from hvdtune.timeline.model.job_metadata import job_metadata_of
from tests.kit.synthetic import Training


def page_of(trace: Trace, title: str = "trace.json") -> str:
    return page(trace, why(trace, job_metadata_of(trace)), measure(trace), title)


TITLES = ("Step times", "Stragglers", "Bus bandwidth", "Response cache")


@pytest.mark.parametrize(
    ("training", "said"),
    [
        pytest.param(Training([10.0, 14.0]), "Rank 1 computes longer", id="findings"),
        pytest.param(Training([10.0, 14.0], steps=3), "INCOMPLETE", id="an incomplete trace"),
        pytest.param(
            Training([17.0, 17.0], asleep_ms=[12.0, 12.0]),
            "Not explained: in 5",
            id="not explained",
        ),
    ],
)
def test_the_page_has_its_answer_pictures_and_metrics(training: Training, said: str) -> None:
    text = page_of(training.trace())
    assert said in text
    assert text.count("<svg") == 2
    assert [title for title in TITLES if f"<h2>{title}</h2>" not in text] == []


def test_numbers_and_the_legend_are_for_people() -> None:
    text = page_of(Training([10.0, 14.0]).trace())
    assert not re.findall(r"<th>\w*(?:_ns|gb_per_s)\w*</th>", text)
    assert "<th>Begins (ms)</th>" in text and re.search(r"<td>[0-9.]+ [kM]?i?B</td>", text)
    (legend,) = re.findall(r'<p class="key">(.*?)</p>', text)
    assert "Waiting for buckets" in legend and "exposed" not in legend
    assert "garbage" not in legend  # there is none


def test_a_metric_without_rows_has_its_sentence_and_no_table() -> None:
    trace = Training([10.0, 14.0], steps=1).trace()
    text = page_of(trace)
    empty = [metric for metric in measure(trace).values() if metric.table.empty]
    assert "Stragglers" in [metric.title for metric in empty]
    for metric in empty:
        after = text.split(f"<h2>{metric.title}</h2>")[1].split("<h2>")[0]
        assert escape(metric.summary) in after and "<table" not in after


def test_every_column_of_a_metric_has_a_heading() -> None:
    told = measure(Training([10.0, 14.0]).trace())
    tables = [metric.table for metric in told.values() if len(metric.table.columns)]
    columns = {str(column).replace("_ns", "_ms") for table in tables for column in table}
    assert len(tables) > 8 and sorted(columns - {*HEADINGS}) == []


def test_time_off_the_processor_is_no_computing() -> None:
    trace = Training([17.0, 17.0], asleep_ms=[12.0, 12.0]).trace()
    steps = measure(trace)["breakdown"].table
    assert steps["off_processor_ms"].median() == pytest.approx(12.0)
    assert steps["compute_ms"].median() == pytest.approx(17.2 - 12.0)
    assert "Off the processor" in re.findall(r'<p class="key">(.*?)</p>', page_of(trace))[0]


def test_the_page_says_which_steps_the_mean_leaves_out() -> None:
    text = page_of(Training([10.0, 14.0], steps=60).trace())
    assert "All 60 steps are shown; 5 are not in the mean" in text


def test_the_page_loads_nothing() -> None:
    text = page_of(Training([10.0, 14.0]).trace())
    assert not re.findall(r"(?:src|href)\s*=|@import|url\(|<script", text)


def test_names_are_text_never_html() -> None:
    spans: dict[tuple[int, int | None], list[tuple[str, float]]]
    spans = {(0, None): [("<script>alert(1)</script>", 1.0)]}
    trace = Training([10.0, 14.0], spans=spans).trace()
    trace.warnings.append("<img src=x onerror=alert(1)>")
    text = page_of(trace, title='"><script>x</script>')
    assert "<script" not in text and "<img" not in text
    assert "&lt;img" in text


def test_clocks_have_a_table_with_their_residual() -> None:
    trace = Training([10.0, 14.0]).trace()
    trace.meta["clock"] = {
        0: {},
        1: {"offset_ns": -5_000_000, "drift_ppm": 12.5, "residual_us": 7.25, "samples": 9},
    }
    text = page_of(trace)
    assert "<h2>Clocks</h2>" in text
    assert "<td>-5.000</td><td>12.500</td><td>7.250</td>" in text
    assert "Clocks of hosts agree to within 7.2 us" in text
