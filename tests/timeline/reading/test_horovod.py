import json

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


def test_operations_are_numbered_by_tensor_and_ticks_belong_to_theirs(tmp_path):
    slices = small(tmp_path).slices
    reduced = slices[slices["kind"] == "ALLREDUCE"]
    assert list(zip(reduced["tensor"], reduced["seq"], strict=True)) == [
        ("a", 0), ("a", 1), ("b", 0),
    ]  # fmt: skip
    ready = slices[slices["kind"] == "READY"]
    assert sorted(zip(ready["tensor"], ready["seq"], ready["rank"], strict=True)) == [
        ("a", 0, 0), ("a", 0, 1), ("b", 0, 0), ("b", 0, 1),
    ]  # fmt: skip


def test_a_negotiation_without_ticks_was_cached(tmp_path):
    slices = small(tmp_path).slices
    announced = slices[slices["kind"] == "NEGOTIATE"]
    cached = set(zip(announced["tensor"], announced["seq"], announced["cached"], strict=True))
    assert cached == {("a", 0, 0), ("a", 1, 1), ("b", 0, 0)}


def test_tensors_that_are_reduced_together_share_a_bucket(tmp_path):
    slices = small(tmp_path).slices
    reduced = slices[slices["kind"].isin(["ALLREDUCE", "EXCHANGE"])]
    buckets = set(zip(reduced["tensor"], reduced["seq"], reduced["bucket"], strict=True))
    assert buckets == {("a", 0, 0), ("a", 1, 1), ("b", 0, 1)}
    assert set(reduced.loc[reduced["kind"] == "ALLREDUCE", "bytes"]) == {32}


def test_odd_arguments_are_no_bytes(tmp_path):
    path = tmp_path / "timeline.json"
    events = [tensor(1, "a"), event("i", 0, "CYCLE_START")]
    for shape in (7, "[99999999999999999999, 9]", None, "?"):
        events += negotiated(1, 0, [], shape)
    path.write_text(json.dumps(events))
    assert set(load(path).slices["bytes"]) <= {-1, 4, 28}


def test_a_timeline_cut_within_a_record_is_read_up_to_it():
    model = load(HOROVOD / "horovod_tiny_np2_cutmidrecord.json.gz")
    assert len(model.slices) == 8419
    assert "the event at byte 999996 is damaged at byte 1000003" in model.warnings[0]
    assert model.slices["open"].sum() == 98


def test_what_a_killed_run_left_open_is_shown_as_open():
    model = load(HOROVOD / "horovod_resnet50_np2_sigkill.json.gz")
    assert model.slices["open"].sum() == 4359 - 4186
