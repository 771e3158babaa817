"""The page on the tables of queries says what the tables are."""

from pathlib import Path

import pytest

from hvdtune.timeline.analysis.metrics import breakdown
from hvdtune.timeline.analysis.quantities import QUANTITIES, counts_of, measure
from hvdtune.timeline.analysis.query import query
from hvdtune.timeline.analysis.query_tables import KIND_MEANINGS, TABLES, page
from hvdtune.timeline.model.slices import KIND_TEXTS
from tests.kit.synthetic import Training

DOCS = Path(__file__).parents[3] / "docs"
TRACE = Training([10.0, 14.0], no_processor_ms=[0.5, 2.0]).trace()


@pytest.fixture(params=TABLES)
def name(request) -> str:
    pytest.importorskip("duckdb")
    return request.param


def test_every_column_of_a_table_is_explained(name):
    assert list(query(TRACE, f"SELECT * FROM {name} LIMIT 1").columns) == [*TABLES[name].columns]


def test_a_column_with_a_quantity_has_its_mean(name):
    values = measure(breakdown.steady_steps(TRACE)) | counts_of(TRACE)
    for column, each in TABLES[name].columns.items():
        if each.quantity and each.quantity != "communicating":  # a ratio of two sums
            mean = query(TRACE, f"SELECT avg({column}) AS mean FROM {name}")["mean"].item()
            assert mean == pytest.approx(values[each.quantity]), column
    if key := TABLES[name].quantity:
        assert query(TRACE, f"SELECT count(*) AS n FROM {name}")["n"].item() == values[key]


def test_the_parts_of_a_step_add_up_and_sleep_is_not_among_computing():
    pytest.importorskip("duckdb")
    parts = " + ".join([*breakdown.PARTS, "off_processor_ms"])
    parts = parts.replace("gpu_idle_ms", "coalesce(gpu_idle_ms, 0)")
    sql = f"SELECT avg(compute_ms) AS computing, avg(step_ms - ({parts})) AS rest FROM steps"
    asleep = Training([10.0, 14.0], asleep_ms=[8.0, 12.0]).trace()
    answer = query(asleep, sql)
    assert answer["computing"].item() == pytest.approx(2.2)
    assert answer["rest"].item() == pytest.approx(0.0, abs=1e-6)


def test_every_quantity_that_is_a_mean_of_a_column_is_named():
    of_columns = {key: each.column for key, each in QUANTITIES.items() if each.column}
    named = {each.quantity: column for column, each in TABLES["steps"].columns.items()}
    of_columns.pop("busy-time")  # a difference of two
    assert {key: named.get(key) for key in of_columns} == of_columns


def test_every_kind_is_explained():
    assert set(KIND_MEANINGS) == set(KIND_TEXTS[1:])


def test_the_page_is_made_from_the_tables():
    assert (DOCS / "sql-tables.md").read_text(encoding="utf-8") == page()
