import json

import pytest

from hvdtune.timeline import load
from tests.kit.traces import DATA, HOROVOD, event

FUSION_OFF = HOROVOD / "horovod_resnet50_np2_cycles_fusion0.json.gz"
OLD = DATA / "sagemaker-debugger/smdebug_1e5f8e0c_horovod_timeline_607lines.json"


def tensor(pid, name):
    return {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}}


def negotiated(pid, begin, ranks, shape="[4, 2]"):
    ticks = [{"ph": "X", "name": str(r), "pid": pid, "ts": begin + 1, "dur": 0} for r in ranks]
    args = {"dtype": "float32", "shape": shape}
    return [
        {"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "pid": pid, "ts": begin}, *ticks,
        {"ph": "E", "pid": pid, "ts": begin + 5},
        {"ph": "B", "name": "ALLREDUCE", "pid": pid, "ts": begin + 6},
        {"ph": "B", "name": "GLOO_ALLREDUCE", "pid": pid, "ts": begin + 7},
        {"ph": "E", "pid": pid, "ts": begin + 8},
        {"ph": "E", "pid": pid, "ts": begin + 9, "args": args},
    ]  # fmt: skip


def small(tmp_path):
    events = [tensor(1, "a"), tensor(2, "b"), *negotiated(1, 0, [0, 1]), *negotiated(1, 100, [])]
    events += negotiated(2, 100, [1, 0])
    path = tmp_path / "timeline.json"
    path.write_text(json.dumps(events).replace("}, ", "}, \n"))
    return load(path)


def test_a_real_timeline_has_its_kinds_tensors_ranks_and_bytes():
    model = load(FUSION_OFF)
    assert [file.format for file in model.files] == ["horovod"]
    reduced = model.slices[model.slices["kind"] == "ALLREDUCE"]
    assert len(reduced) == 4 * 161
    assert reduced["tensor"].nunique() == 161
    weight = reduced[reduced["tensor"] == "allreduce.g.160"]
    assert set(weight["bytes"]) == {64 * 3 * 7 * 7 * 4}
    ready = model.slices[model.slices["kind"] == "READY"]
    assert sorted(ready["rank"].unique()) == [0, 1]
    assert model.origin_unix_ns is not None
    assert model.warnings == []


def test_an_old_timeline_of_one_event_per_line_is_read():
    model = load(OLD)
    assert model.counts["E"] == {"read": 108, "shown": 108, "reported": 0}
    assert set(model.slices["rank"]) >= {4, 7}


@pytest.mark.parametrize(
    ("kinds", "column", "found"),
    [
        pytest.param(
            ["ALLREDUCE"], "bytes", [("a", 0, 32), ("a", 1, 32), ("b", 0, 32)], id="operations"
        ),
        pytest.param(
            ["READY"], "rank", [("a", 0, 0), ("a", 0, 1), ("b", 0, 0), ("b", 0, 1)], id="ticks"
        ),
        pytest.param(
            ["NEGOTIATE"], "cached", [("a", 0, 0), ("a", 1, 1), ("b", 0, 0)], id="without ticks"
        ),
        pytest.param(
            ["ALLREDUCE", "EXCHANGE"],
            "bucket",
            sorted(2 * [("a", 0, 0), ("a", 1, 1), ("b", 0, 1)]),
            id="reduced together",
        ),
    ],
)
def test_slices_are_numbered_by_tensor(tmp_path, kinds, column, found):
    slices = small(tmp_path).slices
    rows = slices.loc[slices["kind"].isin(kinds), ["tensor", "seq", column]]
    assert sorted(rows.itertuples(index=False, name=None)) == found


@pytest.mark.parametrize("shape", [7, "[99999999999999999999, 9]", None, "?"])
def test_odd_arguments_are_no_bytes(tmp_path, shape):
    events = [tensor(1, "a"), event("i", 0, "CYCLE_START"), *negotiated(1, 0, [], shape)]
    (tmp_path / "timeline.json").write_text(json.dumps(events))
    assert set(load(tmp_path / "timeline.json").slices["bytes"]) <= {-1, 4, 28}


@pytest.mark.parametrize(
    ("name", "count", "still_open", "warnings"),
    [
        pytest.param(
            "horovod_tiny_np2_cutmidrecord.json.gz",
            8419,
            98,
            ["the event at byte 999996 is damaged at byte 1000003"],
            id="cut within a record",
        ),
        pytest.param("horovod_resnet50_np2_sigkill.json.gz", 4692, 4359 - 4186, [], id="killed"),
    ],
)
def test_what_a_run_that_did_not_end_left_open_is_shown_as_open(name, count, still_open, warnings):
    model = load(HOROVOD / name)
    assert len(model.slices) == count
    assert model.slices["open"].sum() == still_open
    assert [text for text in warnings if text not in model.warnings[0]] == []
