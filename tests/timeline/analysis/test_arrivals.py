"""Timelines of Horovod's, which say when ranks announced and nothing else of them."""

from pathlib import Path

import pytest

from hvdtune.timeline import load, tensor_table
from hvdtune.timeline.analysis.arrivals import Arrivals, arrivals_of, sentence, table
from hvdtune.timeline.analysis.findings import Answer, why
from hvdtune.timeline.model.job_metadata import job_metadata_of
from hvdtune.timeline.model.trace import Trace
from tests.kit.horovod_timeline import STEP_US, write_horovod_timeline
from tests.kit.traces import HOROVOD


def recorded(tmp_path: Path, steps: int, late_us: list[int], **options: int) -> Trace:
    return load(write_horovod_timeline(tmp_path / "timeline.json", steps, late_us, **options))


def arrivals(trace: Trace) -> Arrivals:
    found = arrivals_of(trace)
    assert found is not None
    return found


def answer(trace: Trace) -> Answer:
    return why(trace, job_metadata_of(trace))


@pytest.mark.parametrize("late", [0, 1, 2])
def test_the_rank_that_announces_last_is_named_with_what_it_costs(tmp_path, late):
    late_us = [100 * rank for rank in range(3)]
    late_us[late] = 5_000
    others = max(us for rank, us in enumerate(late_us) if rank != late)
    found = answer(recorded(tmp_path, 40, late_us))
    (finding,) = found.findings
    assert (finding.kind, finding.ranks) == ("late-rank", (late,))
    assert finding.cost.mean == pytest.approx((5_000 - others) / 1000)
    # The first steps, as of all traces, and the one that was cut off are no measure.
    assert found.steps == 35 and found.step_ms == pytest.approx(STEP_US / 1000)


@pytest.mark.parametrize(
    ("late_us", "every"),
    [
        pytest.param([0, 200], 1, id="too-little-to-matter"),
        pytest.param([0, 8_000], 2, id="in-every-other-step"),
    ],
)
def test_no_rank_is_accused_of_little_or_of_some_steps(tmp_path, late_us, every):
    found = answer(recorded(tmp_path, 40, late_us, every=every))
    assert (found.verdict, found.findings) == ("unexplained", ())
    assert "no rank is late" in found.headline


def test_what_the_response_cache_hid_is_said_and_nobody_accused(tmp_path):
    trace = recorded(tmp_path, 40, [0, 5_000], known=6)
    found = answer(trace)
    assert (found.verdict, found.findings) == ("incomplete", ())
    said = "announcements of every rank for 25 of 160 operations; rank 1 was last in 25 of them"
    assert said in found.headline and "HOROVOD_CACHE_CAPACITY=0" in found.headline
    assert len(arrivals(trace).found) == 35


def test_each_rank_has_its_row(tmp_path):
    rows = table(arrivals(recorded(tmp_path, 40, [4_000, 0])))
    assert rows["rank"].tolist() == [0, 1]
    assert rows["late_percent"].tolist() == [100.0, 0.0]
    assert rows["operations"].tolist() == [160, 0]
    assert rows.loc[0, "late_ms"] == rows.loc[0, "cost_ms_per_step"] == 4.0


def test_the_table_of_tensors_says_of_each_what_ticks_say_of_all(tmp_path):
    trace = recorded(tmp_path, 40, [100, 5_000, 200])
    tensors, known = tensor_table(trace), arrivals(trace)
    assert (tensors["last_rank"] == 1).all() and (tensors["last_rank_percent"] == 100).all()
    # From the first rank's announcement to the last rank's, in each of its operations.
    assert tensors["late_p95_us"].to_numpy() == pytest.approx(4_900)
    assert tensors["late_ms"].to_numpy() == pytest.approx(4.9 * tensors["count"].to_numpy())
    assert tensors["count"].sum() == table(known)["operations"].sum()


def test_the_table_of_tensors_counts_the_operations_of_which_all_ticks_are_there(tmp_path):
    trace = load(HOROVOD / "horovod_resnet50_np2_sigkill.json.gz")
    tensors, known = tensor_table(trace), arrivals(trace).known
    assert tensors["late_ms"].sum() == pytest.approx(known["late_ms"].sum())
    named = known["last"].groupby("tensor").agg(lambda last: last.mode()[0])
    assert tensors.loc[tensors["last_rank"] >= 0, "tensor"].isin(named.index).all()
    for name, last, percent in tensors[["tensor", "last_rank", "last_rank_percent"]].values:
        assert (last == -1) == (name not in named.index)
        assert name not in named.index or percent == 100 * (known["last"][name] == last).mean()


def test_a_real_timeline_says_of_which_operations_it_knows():
    trace = load(HOROVOD / "horovod_resnet50_np2_sigkill.json.gz")
    known = arrivals(trace)
    assert (known.ranks, known.operations, len(known.known)) == ((0, 1), 978, 161)
    assert len(known.found) == 4 and known.steps.empty
    assert "161 of 978 operations" in sentence(known)


def test_a_trace_without_ticks_has_no_arrivals():
    assert arrivals_of(load(HOROVOD.parent / "speedscope" / "simple.json")) is None
