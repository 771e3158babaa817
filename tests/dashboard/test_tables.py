import pandas as pd
import pytest

from hvdtune.dashboard.blocks import number_columns
from hvdtune.dashboard.study import open_study
from hvdtune.dashboard.tables import tensor_columns, tensor_rows, trial_columns, trial_rows
from hvdtune.timeline import tensor_table
from hvdtune.timeline.analysis.compare import relative
from hvdtune.timeline.analysis.metrics.bandwidth import rated

from .conftest import settle
from .studies import write_study
from .synthetic import HOSTILE, training_trace


def _fields(columns):
    for column in columns:
        yield from _fields(column["children"]) if "children" in column else [column["field"]]


def test_every_tensor_column_has_its_values():
    rows = tensor_rows(tensor_table(training_trace(tensors=4)))
    assert list(rows.columns) == [*_fields(tensor_columns(rows)), "about"]
    assert len(rows) == 4


def test_every_trial_column_has_its_values_and_knobs_are_columns(tmp_path):
    write_study(tmp_path)
    trials = open_study(tmp_path).trials
    assert list(trial_rows(trials).columns) == list(_fields(trial_columns(trials)))
    assert trial_columns(trials)[-1]["headerName"] == "cycle_time_ms"


@pytest.mark.parametrize(
    ("field", "values", "shown"),
    [
        pytest.param("bytes_p50", [133120.0], "hvdtuneSize(params.value)", id="a median of bytes"),
        pytest.param("gb_per_s_p50", [0.0031], "hvdtuneRate(params.value)", id="a bandwidth"),
        pytest.param("percent", [4899.57], "hvdtuneChange(params.value)", id="a change"),
        pytest.param("buckets", [4001], "d3.format(',.0f')", id="a count"),
        pytest.param("ms_p50", [0.003], "hvdtuneMs(params.value)", id="a short time"),
        pytest.param("busy_ms", [1.25], "hvdtuneMs(params.value)", id="a time"),
    ],
)
def test_a_number_is_shown_with_the_digits_that_it_has(field, values, shown):
    (column,) = number_columns(pd.DataFrame({field: values}), {field: "x"})
    assert shown in column["valueFormatter"]["function"]


_BESIDE = """() => [...document.querySelectorAll(".ag-center-cols-viewport")].map(
  (seen) => seen.querySelector(".ag-center-cols-container").scrollWidth - seen.clientWidth)"""


@pytest.mark.parametrize(
    ("address", "width"),
    [
        pytest.param("/tensors", 1280, id="tensors"),
        pytest.param("/tensors", 390, id="tensors on a telephone"),
        pytest.param("/study", 1280, id="trials"),
        pytest.param("/ranks", 390, id="ranks on a telephone", marks=pytest.mark.slow),
        pytest.param("/fusion", 390, id="buckets on a telephone", marks=pytest.mark.slow),
    ],
)
def test_no_column_is_beyond_the_edge_of_a_table_and_the_rest_is_a_button_away(
    visit, address, width
):
    page = visit(address)
    page.set_viewport_size({"width": width, "height": 900})
    settle(page)
    page.wait_for_function(f"({_BESIDE})().every((beside) => beside <= 1)")
    button = page.locator("[data-more]:visible").first
    hidden = int(button.text_content().split()[1])
    shown = page.locator(".ag-header-cell").count()
    button.click()
    page.wait_for_function(f"({_BESIDE})().some((beside) => beside > 1)")
    assert page.locator(".ag-header-cell").count() > shown
    assert button.text_content() == "Show what fits"
    button.click()
    button.get_by_text(f"Show {hidden} more column").wait_for()


def test_cells_are_written_as_python_writes_them(visit):
    page = visit("/fusion?run=1")
    write = "([name, value]) => window.dashAgGridFunctions[name](value)"
    for rate in (5.263, 0.25, 0.0000892, 5e-8):
        assert page.evaluate(write, ["hvdtuneRate", rate]) == rated(rate)
    for percent in (900.0, 4_899.57, 123_456.0):
        assert page.evaluate(write, ["hvdtuneChange", percent]) == relative(percent)
    assert page.evaluate(write, ["hvdtuneChange", -25.04]) == "-25.0"


_CUT = """(name) => {
  const cell = [...document.querySelectorAll("[col-id=tensor] .cut")]
    .find((each) => each.textContent === name);
  if (!cell) return null;
  const [head, tail] = cell.children;
  getSelection().selectAllChildren(cell);
  return {
    headIsCut: head.scrollWidth > head.clientWidth,
    tailFits: tail.scrollWidth <= tail.clientWidth
      && tail.getBoundingClientRect().right <= cell.getBoundingClientRect().right + 0.5,
    tail: tail.textContent,
    copied: getSelection().toString(),
  };
}"""


def test_a_long_name_is_cut_in_its_middle_and_copied_whole(visit):
    page = visit("/tensors")
    page.set_viewport_size({"width": 390, "height": 900})
    settle(page)
    cut = page.evaluate(_CUT, HOSTILE)
    assert cut.pop("tail") == HOSTILE[-12:]
    assert cut == {"headIsCut": True, "tailFits": True, "copied": HOSTILE}
    assert page.evaluate(_CUT, "model.layer0.weight")["headIsCut"] is False
