"""Findings from traces of other programs."""

from pathlib import Path

import pytest

from hvdtune.timeline import open_trace
from hvdtune.timeline.analysis.findings import why
from hvdtune.timeline.analysis.metrics import breakdown, stragglers
from hvdtune.timeline.model.job_metadata import job_metadata_of

DATA = Path(__file__).parents[1] / "data"


def test_ranks_of_torch_profiler_are_compared() -> None:
    trace = open_trace(DATA / "kineto")
    kinds = set(trace.events["kind"].astype(str))
    assert {"STEP", "NEGOTIATE", "BUCKET", "ALLREDUCE"} <= kinds
    steps = breakdown.table(trace.events)
    assert set(steps["rank"]) == {0, 1}
    assert (steps["blocked_ms"] <= steps["step_ms"]).all()
    assert stragglers.busy_times(steps).shape[1] == 2


def test_one_rank_of_several_is_incomplete() -> None:
    (first, *_) = sorted((DATA / "kineto").glob("*rank0*"))
    trace = open_trace(first)
    answer = why(trace, job_metadata_of(trace))
    assert (answer.verdict, answer.findings) == ("incomplete", ())
    assert "no events of rank 1" in "; ".join(answer.missing)


def test_slices_without_a_job_are_not_called_no_events(tmp_path: Path) -> None:
    generic = tmp_path / "generic.json"
    generic.write_text('[{"ph":"X","name":"work","ts":1,"dur":2}]')
    profiled = tmp_path / "profiled.json"
    profiled.write_text('[{"ph":"X","name":"aten::mm","cat":"cpu_op","ts":1,"dur":2}]')
    said = []
    for path in (generic, profiled):
        trace = open_trace(path)
        said.append("; ".join(why(trace, job_metadata_of(trace)).missing))
    assert said[0] == "a trace of a program that is not known has no collectives and no steps"
    assert said[1] == "no step and no collective is among its 1 slice(s)"


@pytest.mark.parametrize("folder", ["horovod", "sagemaker-debugger", "speedscope"])
def test_formats_that_lack_the_evidence_name_nobody(folder: str) -> None:
    for path in sorted((DATA / folder).iterdir()):
        trace = open_trace(path)
        answer = why(trace, job_metadata_of(trace))
        assert (answer.verdict, answer.findings) == ("incomplete", ()), path.name
        assert all(len(text) > 20 for text in answer.missing)
