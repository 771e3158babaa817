"""What bears one name is one number, on every page and in every command; unknown is not 0."""

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest

from hvdtune.cli.app import main
from hvdtune.dashboard.data import RunView, open_run
from hvdtune.dashboard.figures.breakdown import parts_of as parts_of_steps
from hvdtune.dashboard.pages import PAGES
from hvdtune.dashboard.shell import PageAddress
from hvdtune.dashboard.timeline_view import LEGEND
from hvdtune.timeline import open_trace, write_chrome
from hvdtune.timeline.analysis import arrivals, compare
from hvdtune.timeline.analysis.metrics import breakdown, efficiency, gpu, overlap, stragglers
from hvdtune.timeline.analysis.quantities import (
    QUANTITIES,
    counts_of,
    in_words,
    measure,
    page,
)
from hvdtune.timeline.analysis.query import can_query, query
from hvdtune.timeline.analysis.recorded import FACTS
from hvdtune.timeline.model.schema import KIND_NAMES
from tests.kit import gpu_recordings
from tests.kit.horovod_timeline import write_horovod_timeline
from tests.kit.synthetic import Recorder, Training
from tests.kit.traces import KINETO, SPEEDSCOPE

DOCS = Path(__file__).parents[2] / "docs"
_JOBS = {
    "balanced": Training([10.0, 10.0], bucket_ms=4.0, noise_ms=0.3),
    "uneven": Training([10.0, 13.0, 11.0], no_processor_ms=[0.5, 2.0, 0.0], noise_ms=0.4),
    "input": Training([10.0, 10.0], spans={(1, None): [("input", 3.0)]}, noise_ms=0.2),
    "without processor times": Training([10.0, 14.0], ran=False),
}

_ALL = [*_JOBS, "kineto", "horovod", "horovod with its cache", *gpu_recordings.ALL]
# Others of their kind have all that these have.
_SLOW = ("balanced", "torch.profiler", "horovod")
_RUNS = [pytest.param(name, marks=pytest.mark.slow if name in _SLOW else ()) for name in _ALL]


@pytest.fixture(scope="module", params=_RUNS)
def run(request, tmp_path_factory) -> RunView:
    if request.param == "kineto":
        return open_run(KINETO)
    folder = tmp_path_factory.mktemp("trace")
    if write_gpus := gpu_recordings.ALL.get(request.param):
        return open_run(write_gpus(folder))
    path = folder / "trace.json"
    if request.param.startswith("horovod"):
        known = 6 if request.param == "horovod with its cache" else None
        write_horovod_timeline(path, 40, [0, 5_000], known=known)
    else:
        write_chrome(_JOBS[request.param].trace(), path)
    return open_run(path)


def parts_of(part):
    """All components of a page, and its texts."""
    if isinstance(part, list | tuple):
        for each in part:
            yield from parts_of(each)
    elif part is not None:
        yield part
        yield from parts_of(getattr(part, "children", None))


def shown_on(run, path):
    return [*parts_of(PAGES[path].layout(run, PageAddress(0, {})))]


def printed(capsys, *words):
    with pytest.raises(SystemExit) as ended:
        main(["timeline", *words])
    assert ended.value.code == 0
    return capsys.readouterr().out


def answered(run, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["timeline", "why", "--json", run.title])
    assert ended.value.code == {"incomplete": 5, "unexplained": 6}.get(run.answer.verdict, 0)
    return json.loads(capsys.readouterr().out)


def test_a_step_that_is_not_explained_is_grey_on_the_overview(tmp_path):
    write_chrome(Training([17.0] * 2, asleep_ms=[12.0] * 2).trace(), tmp_path / "trace.json")
    run = open_run(tmp_path / "trace.json")
    (alert,) = (part for part in shown_on(run, "/") if getattr(part, "id", "") == "verdict")
    assert (alert.title, alert.color) == ("Not explained", "gray")
    said = next(part for part in parts_of(alert.children) if isinstance(part, str))
    assert said.lower() == f"{run.answer.unexplained.lower()}."
    assert "largest other part is time off the processor" in run.answer.unexplained


def test_a_quantity_has_one_value_on_all_pages_and_unknown_ones_say_so(run):
    found: dict[str, set[str]] = {}
    for path in PAGES:
        for part in shown_on(run, path):
            key = getattr(part, "data-quantity", None)
            if key is not None:
                found.setdefault(key, set()).add(getattr(part, "data-value"))
    values = run.quantities | counts_of(run.trace)
    assert "step-time" in found
    for key, texts in found.items():
        assert texts == {in_words(key, values[key])}, key
        assert (texts == {"not known"}) == math.isnan(values[key])


def test_slices_are_counted_alike_everywhere(run, capsys):
    count = len(run.whole_trace.slices)
    assert run.trace.slice_count == run.whole_trace.slice_count == count > 0
    assert json.loads(printed(capsys, "stats", "--json", run.title))["slices"] == count
    assert f"{count:,} slices" in printed(capsys, "stats", run.title)
    texts = [part for part in shown_on(run, "/timeline") if isinstance(part, str)]
    drawn = run.swimlane.slices_drawn
    assert f"All lanes draw {drawn:,} slices; the trace holds {count:,} slices." in texts
    cards = {getattr(part, "data-quantity", None): part for part in shown_on(run, "/")}
    assert getattr(cards["slices"], "data-value") == f"{count:,}"


def test_every_sentence_about_steps_has_the_same_step_time(run, capsys):
    assert run.answer.step_ms == pytest.approx(run.quantities["step-time"])
    said = f"{run.quantities['step-time']:.2f} ms"
    if run.arrivals is None:
        assert breakdown.sentence(run.steps).startswith(f"A step takes {said},")
    texts = [part for part in shown_on(run, "/") if isinstance(part, str)]
    times = {match for text in texts for match in re.findall(r"steps of ([0-9.,]+ ms)", text)}
    times |= {match for text in texts for match in re.findall(r"step takes ([0-9.,]+ ms)", text)}
    assert times == {said}
    assert said in " ".join([run.answer.headline, *run.answer.notes])
    assert f"{answered(run, capsys)['step_ms']:.2f} ms" == said


def test_parts_and_tables_add_up_to_the_quantities(run):
    if run.steps.empty or run.arrivals is not None:
        pytest.skip("steps have no parts")
    values = run.quantities
    parts = [values[key] for key in ("waiting-for-ranks", "waiting-for-negotiation", "exposed")]
    assert values["waiting"] == pytest.approx(np.nansum(parts))
    assert values["busy-time"] + values["waiting"] == pytest.approx(values["step-time"])
    ranks = stragglers.table(run.steps)
    assert ranks["waited_ms_per_step"].mean() == pytest.approx(values["waiting-for-ranks"])
    costs = run.late_ranks
    if len(costs) > 1 and not breakdown.is_only_of_streams(run.trace.events, run.steps):
        waited = costs.set_index("rank")["waited_ms_per_step"]
        for row in costs.to_dict("records"):
            assert row["cost_ms_per_step"] <= waited.drop(row["rank"]).min() + 1e-9
            assert row["excess_ms"] <= row["cost_ms_per_step"] + 1e-9
    matrix = stragglers.waits_for(run.trace, run.steps)
    assert matrix.sum(axis=1).mean() == pytest.approx(values["waiting-for-ranks"], abs=1e-9)
    share = efficiency.table(run.steps)["percent"].iloc[0]
    assert share == pytest.approx(100 * values["busy-time"] / values["step-time"])
    hidden = overlap.table(run.steps)
    assert hidden["exposed_ms_per_step"].mean() == pytest.approx(values["exposed"])
    gpus = gpu.table(run.trace, run.steps)
    if len(gpus):  # nothing is in flight on another rank only
        assert gpus["alone_percent"].mean() == pytest.approx(
            100 * values["waiting"] / values["step-time"]
        )
    compared = compare.of_steps(run.steps, run.steps)
    if len(compared):
        assert compared.loc[0, "a_ms"] == pytest.approx(values["step-time"])


@pytest.mark.parametrize(
    ("trace", "absent"),
    [
        pytest.param(Training([10.0]).trace(), {"waiting-for-ranks"}, id="a single rank"),
        pytest.param(
            Recorder([(0, KIND_NAMES.index("STEP"), 0, n, n + 1, n, 0, 0) for n in range(9)]).trace(
                1
            ),
            {"waiting-for-ranks", "exposed", "communicating"},
            id="steps alone",
        ),
    ],
)
def test_what_does_not_apply_has_no_card(trace, absent):
    shown = {getattr(part, "data-quantity", None) for part in shown_on(RunView("run", trace), "/")}
    cards = {"step-time", "waiting-for-ranks", "exposed", "communicating", "lost-processor-time"}
    assert cards - shown == absent


def test_what_a_trace_does_not_record_is_unknown():
    values = open_run(KINETO).quantities
    assert math.isnan(values["lost-processor-time"])
    assert in_words("lost-processor-time", values["lost-processor-time"]) == "not known"
    nothing = breakdown.steady_steps(Training([1.0], steps=0).trace())
    assert all(math.isnan(value) for value in measure(nothing).values())


def test_what_a_horovod_timeline_says_of_buckets_is_the_same_on_all_pages(tmp_path):
    horovod = open_run(write_horovod_timeline(tmp_path / "trace.json", 40, [0, 5_000], known=6))
    texts = {
        page: " ".join(part for part in shown_on(horovod, page) if isinstance(part, str))
        for page in ("/tensors", "/fusion")
    }
    assert "in its bucket" not in texts["/tensors"]
    assert "There are no buckets" not in texts["/fusion"]
    assert FACTS["buckets"].sentence in texts["/fusion"]
    assert "of announcements hit the cache" in texts["/fusion"]


def test_hits_of_the_cache_are_unknown_where_every_announcement_has_ticks(tmp_path):
    path = write_horovod_timeline(tmp_path / "trace.json", 40, [0, 5_000])
    assert FACTS["cache"].sentence in " ".join(map(str, shown_on(open_run(path), "/fusion")))
    slices = open_trace(path).slices
    assert set(slices["cached"][slices["kind"] == "NEGOTIATE"]) == {-1}


def test_steps_are_the_same_ones_wherever_they_are_spoken_of(run, capsys):
    number = run.answer.steps
    assert run.arrivals is None or number == run.summary["steps"]
    assert any(f"{number} steps" in part for part in shown_on(run, "/") if isinstance(part, str))
    assert answered(run, capsys)["steps"] == number
    if can_query():
        found = query(run.whole_trace, "SELECT count(DISTINCT step) AS n, avg(step_ms) FROM steps")
        assert found.iloc[0].tolist() == pytest.approx([number, run.quantities["step-time"]])
    if run.arrivals is not None:
        said = arrivals.sentence_of_steps(run.arrivals)
        assert said in [part for part in shown_on(run, "/ranks") if isinstance(part, str)]
        reported = json.loads(printed(capsys, "report", "--json", run.title))
        assert reported["metrics"]["breakdown"]["says"] == said


def test_what_is_unknown_is_null_for_queries_and_called_so_in_reports(run, capsys, tmp_path):
    if run.steps.empty or run.arrivals is not None:
        pytest.skip("steps have no parts")
    columns = ["no_processor_ms", "gpu_idle_ms", "gc_ms", "checkpoint_ms", "negotiate_ms"]
    unknown = [column for column in columns if run.steps[column].isna().all()]
    for key, each in QUANTITIES.items():
        if each.column in columns:
            assert (each.column in unknown) == (in_words(key, run.quantities[key]) == "not known")
    counts = {column: 0 if column in unknown else len(run.steps) for column in columns}
    if can_query():
        asked = ", ".join(f"count({column}) AS {column}" for column in columns)
        found = query(run.whole_trace, f"SELECT {asked} FROM steps").iloc[0]
        assert found.to_dict() == counts
    rows = json.loads(printed(capsys, "report", "--json", run.title))["metrics"]["breakdown"][
        "rows"
    ]
    assert {column for column in columns if rows[0][column] is None} == set(unknown)
    written = tmp_path / "report.html"
    printed(capsys, "report", run.title, "-o", str(written))
    assert ("<p>Not known: " in written.read_text()) == bool(unknown)


def test_what_torch_profiler_does_not_record_is_on_no_page():
    kineto = open_run(KINETO)
    fusion = shown_on(kineto, "/fusion")
    texts = " ".join(part for part in fusion if isinstance(part, str))
    assert texts.count("is not recorded") == 1
    assert "does not record the bytes of buckets" in texts
    assert texts.count("Hits of the response cache are not recorded") == 1
    assert "hit the cache" not in texts and "no cycles" not in texts
    assert not [part for part in fusion if hasattr(part, "columnDefs")]
    (grid,) = [part for part in shown_on(kineto, "/tensors") if hasattr(part, "columnDefs")]
    shown = {column["field"] for column in grid.columnDefs}
    assert "communicate_p50_ms" in shown
    assert not shown & {"negotiate_p50_ms", "negotiate_p95_ms", "bucket_bytes"}
    assert "negotiate" not in {lane.label for lane in kineto.swimlane.lanes}


@pytest.mark.parametrize(
    ("ran", "said"),
    [
        pytest.param(True, ("% computing", "it computes longer"), id="processor times"),
        pytest.param(
            False,
            (f"% {breakdown.UNTOLD}", "busy longer, with computing or unrecorded activity"),
            id="none",
        ),
    ],
)
def test_nothing_is_called_computing_that_may_be_something_else(ran, said):
    job = RunView("run", Training([10.0, 14.0], ran=ran).trace())
    texts = " ".join(part for part in shown_on(job, "/") if isinstance(part, str))
    assert [text in texts for text in said] == [True, True]
    drawn = parts_of_steps(job.steps).mean()
    assert (drawn["computing"] > 0, drawn["untold"] > 0) == (ran, not ran)


def test_a_timeline_calls_busy_time_computing_nowhere(run):
    texts = [part for part in shown_on(run, "/timeline") if isinstance(part, str)]
    assert "busy" in LEGEND and not [name for name in LEGEND if "comput" in name]
    told = [text for text in texts if "show it as computing" in text or "may be computing" in text]
    values = run.steps[["off_processor_ms", "no_processor_ms"]].mean()
    if run.quantities["lost-processor-time"] > 0.1:
        assert f"{values['no_processor_ms']:.2f} ms without a processor" in told[0]
    has_parts = len(run.steps) > 0 and run.arrivals is None
    assert bool(told) == (has_parts and not (values < 0.05).all())


def test_the_costs_of_a_rank_are_told_apart_wherever_one_stands(run):
    named = [found for found in run.answer.findings if found.ranks and run.arrivals is None]
    for found in named:
        rows = run.late_ranks.set_index("rank").loc[found.ranks[0]]
        told = f"in total, rank {found.ranks[0]} costs the others {rows['cost_ms_per_step']:.2f} ms"
        assert any(text.startswith(told) for text in found.evidence)
        ranks = " ".join(part for part in shown_on(run, "/ranks") if isinstance(part, str))
        assert f"would be {rows['cost_ms_per_step']:.2f} ms shorter" in ranks
        assert f"{rows['excess_ms']:.2f} ms of that because" in ranks
    assert named or run.steps["rank"].nunique() < 3


def test_definitions_are_on_their_page_and_in_the_documentation(run):
    texts = [part for part in shown_on(run, "/definitions") if isinstance(part, str)]
    assert {each.definition for each in QUANTITIES.values()} <= set(texts)
    assert (DOCS / "quantities.md").read_text(encoding="utf-8") == page()


def test_report_and_why_tell_the_same_of_communication(run, capsys):
    if run.steps.empty or run.arrivals is not None:
        pytest.skip("steps have no parts")
    reported = json.loads(printed(capsys, "report", "--json", run.title))["metrics"]
    rows = reported["overlap"]["rows"]
    exposed = sum(row["exposed_ms_per_step"] for row in rows) / len(rows)
    assert exposed == pytest.approx(run.quantities["exposed"])
    for found in run.answer.findings:
        if found.kind == "exposed-communication":
            assert f"of all ranks is {run.quantities['waiting']:.2f} ms" in found.evidence[1]


def test_no_card_says_its_unit_twice(run):
    for part in shown_on(run, "/"):
        if key := getattr(part, "data-quantity", None):
            title, value, note = [text for text in parts_of(part) if isinstance(text, str)]
            unit = QUANTITIES[key].unit.split()[0]
            assert title == QUANTITIES[key].title and value == getattr(part, "data-value")
            assert not note.startswith(unit), note


def test_tensors_of_an_unknown_program_are_not_known_and_not_none():
    run = open_run(SPEEDSCOPE / "simple.json")
    assert run.counts["slices"] == 4 and math.isnan(run.counts["tensors"])
    cards = {getattr(part, "data-quantity", None): part for part in shown_on(run, "/")}
    assert getattr(cards["tensors"], "data-value") == "not known"
    assert getattr(cards["slices"], "data-value") == "4"
