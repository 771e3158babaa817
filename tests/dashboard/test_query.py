"""The page that answers SQL."""

from dataclasses import replace
from urllib.parse import quote

import pytest

from hvdtune.dashboard.data import open_run
from hvdtune.dashboard.pages import query as query_page
from hvdtune.dashboard.shell import PageAddress
from hvdtune.timeline.analysis.overview import overview
from hvdtune.timeline.analysis.query import query
from hvdtune.timeline.analysis.query_tables import TABLES
from hvdtune.workflows.traces import existing
from tests.kit.synthetic import Training

from .conftest import settle

pytest.importorskip("duckdb")


@pytest.fixture(autouse=True)
def _no_process_is_left():
    yield
    query_page.QUERIES.end()


def answered(page, text):
    page.locator("#sql-answer", has_text=text).wait_for()


def test_the_query_of_an_address_waits_for_run_and_another_becomes_part_of_it(visit):
    page = visit(
        "/query?run=1&sql=" + quote("SELECT rank AS \"a.b\", '<i>x' AS t FROM steps LIMIT 2")
    )
    page.locator(".note", has_text="comes from the page's address").wait_for()
    settle(page)
    assert page.locator("#sql-answer").inner_text() == ""
    assert query_page.QUERIES._process is None
    page.locator("#sql-run").click()
    answered(page, "2 rows.")
    page.locator("#sql-table .ag-row .ag-cell").nth(3).wait_for()
    cells = page.locator("#sql-table .ag-row .ag-cell").all_inner_texts()
    assert [cells[0], cells[1]] == ["0", "<i>x"]
    page.locator("#sql-text").fill("SELECT nothing")
    page.locator("#sql-run").click()
    answered(page, "cannot be answered")
    assert "sql=SELECT+nothing" in page.url
    settle(page)


@pytest.mark.parametrize("name", query_page._EXAMPLES)
def test_every_example_has_an_answer(run_folder, name):
    found = query(open_run(run_folder).whole_trace, query_page._EXAMPLES[name], query_page.LIMITS)
    assert len(found)


@pytest.mark.parametrize(
    "sql", ["SELECT NULL AS a, 1 AS b", "SELECT 'x' AS a UNION ALL SELECT NULL"]
)
def test_what_is_unknown_is_shown_as_null(sql):
    shown = query_page._shown(query(Training([5.0]).trace(), sql, query_page.LIMITS))
    assert "NULL" in str(shown)


def test_the_time_by_kind_is_what_stats_shows(run_folder):
    found = query(open_run(run_folder).whole_trace, query_page._EXAMPLES["Time by kind"])
    assert len(found)
    shown = {(row.rank, row.kind): row.busy_ms for row in overview(existing([run_folder])).kinds()}
    for row in found.itertuples():
        assert shown[row.rank, row.kind] == pytest.approx(row.ms, abs=0.001)


def test_the_page_explains_every_column(run_folder):
    page = str(query_page.layout(open_run(run_folder), PageAddress(0, {})))
    for table in TABLES.values():
        assert all(each.meaning[1:] in page for each in table.columns.values())


@pytest.mark.parametrize(
    ("change", "most", "said"),
    [
        ({"path": None}, 2_000_000, "no trace on the disk"),
        ({}, 10, "more than 10 slices"),
    ],
)
def test_what_cannot_be_asked_says_why(run_folder, monkeypatch, change, most, said):
    monkeypatch.setattr(query_page, "MOST_SLICES", most)
    page = query_page.layout(replace(open_run(run_folder), **change), PageAddress(0, {}))
    assert said in str(page)
