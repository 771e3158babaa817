"""The report's one file."""

import re

from hvdtune.timeline import Trace
from hvdtune.timeline.analysis.findings import why
from hvdtune.timeline.analysis.report import measure, page
from hvdtune.timeline.model.job_metadata import job_metadata_of
from tests.kit.synthetic import Training


def page_of(trace: Trace, title: str = "trace.json") -> str:
    return page(trace, why(trace, job_metadata_of(trace)), measure(trace), title)


def test_the_page_has_findings_pictures_and_metrics() -> None:
    text = page_of(Training([10.0, 14.0]).trace())
    assert "rank 1 computes longer" in text
    assert text.count("<svg") == 2
    for title in ("Step times", "Stragglers", "Bus bandwidth", "Response cache"):
        assert f"<h2>{title}</h2>" in text


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


def test_an_incomplete_trace_has_a_page_too() -> None:
    trace = Training([10.0, 14.0], steps=3).trace()
    assert "INCOMPLETE" in page_of(trace)


def test_clocks_have_a_table_with_their_residual() -> None:
    trace = Training([10.0, 14.0]).trace()
    trace.meta["clock"] = {
        0: {},
        1: {"offset_ns": -5_000_000, "drift_ppm": 12.5, "residual_us": 7.25, "samples": 9},
    }
    text = page_of(trace)
    assert "<h2>Clocks</h2>" in text
    assert "<td>-5.000</td><td>12.500</td><td>7.250</td>" in text
    assert "clocks of hosts agree to 7.2 us" in text
