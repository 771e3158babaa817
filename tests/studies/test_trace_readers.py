"""The trace that parsers are measured with is a whole one, and the table is made of it."""

import multiprocessing

import pytest

from hvdtune.timeline import load
from studies.bench import chrome_trace, trace_readers


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    path = tmp_path_factory.mktemp("bench") / "trace.json"
    return path, chrome_trace.write(path, 1_500_000)


def test_the_generated_trace_has_every_event_that_was_written(trace):
    path, events = trace
    model = load(path)
    assert model.warnings == []
    assert sum(numbers["read"] for numbers in model.counts.values()) == events
    assert set(model.counts) == set("BCEMXbefis")
    assert 1_500_000 <= path.stat().st_size < 2_500_000


@pytest.mark.parametrize("parser", trace_readers.OURS)
def test_every_parser_of_ours_counts_the_same_events(trace, parser):
    path, events = trace
    assert parser(path) == events


@pytest.mark.slow
def test_the_table_has_a_line_for_each_parser(trace):
    path, _ = trace
    lines = list(trace_readers.table(path, path))
    assert len([line for line in lines if line.startswith("| hvdtune")]) == len(trace_readers.OURS)
    assert multiprocessing.active_children() == []
