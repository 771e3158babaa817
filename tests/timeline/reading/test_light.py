"""A trace that is opened without its slices is the same trace."""

from collections import Counter
from pathlib import Path

import pytest

from hvdtune.timeline import open_trace
from hvdtune.timeline.reading import cache
from hvdtune.timeline.reading.opening import open_light
from tests.kit.traces import event, write

DATA = Path(__file__).parents[1] / "data"
TRACES = [
    DATA / "kineto",
    DATA / "horovod" / "horovod_resnet50_np2_cycles_fusion0.json.gz",
    DATA / "speedscope" / "multiprocess.json",
    DATA / "speedscope" / "out-of-order.json",
]


def drawn(trace):
    others = trace.others
    if others is None:
        return Counter()
    rows = others.rows
    times = zip(rows["begin_ns"].tolist(), rows["end_ns"].tolist(), strict=True)
    texts = zip(*(rows[key].astype(str) for key in ("kind", "name", "category")), strict=True)
    return Counter(
        (*others.thread_of(row), *at, *said)
        for row, (at, said) in enumerate(zip(times, texts, strict=True))
    )


def said_of_some(trace):
    rows = trace.others.rows
    alone = ~rows.duplicated(["begin_ns", "end_ns"], keep=False)
    return [trace.others.args(int(row)) for row in alone.to_numpy().nonzero()[0][::50]]


@pytest.fixture(params=[True, False], ids=["from its cache", "parsed"])
def cached(request, monkeypatch):
    monkeypatch.setattr(cache, "is_worth_it", lambda file: request.param and file.kind == "text")
    monkeypatch.setattr(cache, "ROWS_PER_GROUP", 20)
    return request.param


@pytest.mark.parametrize("source", TRACES, ids=lambda path: path.name)
def test_a_light_trace_has_the_same_events_and_draws_the_same(source, cached, tmp_path):
    path = tmp_path / source.name
    if source.is_dir():
        path.mkdir()
        for file in source.iterdir():
            (path / file.name).write_bytes(file.read_bytes())
    else:
        path.write_bytes(source.read_bytes())
    whole, light = open_trace(path), open_light(path)
    assert light.events.equals(whole.events)
    assert drawn(light) == drawn(whole)
    assert said_of_some(light) == said_of_some(whole)
    assert light.left_out() == whole.left_out()
    assert (light.counts, light.meta) == (whole.counts, whole.meta)
    assert light.parsed is None


def test_arguments_are_not_those_of_a_trace_that_was_changed(monkeypatch, tmp_path):
    monkeypatch.setattr(cache, "is_worth_it", lambda file: True)
    path = write(tmp_path / "a.json", event("X", 5, dur=2, args={"said": 1}))
    trace = open_light(path)
    assert trace.others.args(0) == '{"said": 1}'
    write(path, event("X", 5, dur=2, args={"other": 2}))
    assert "has changed since it was opened" in trace.others.args(0)


def test_threads_are_in_the_order_of_their_numbers(tmp_path):
    events = [event("X", 5, dur=2, tid=tid) for tid in (10, 9, "main", 1)]
    others = open_light(write(tmp_path / "a.json", *events)).others
    assert others.threads["tid"].tolist() == ["1", "9", "10", "main"]
