import gzip
import json
from collections import defaultdict

import pandas as pd
import pytest

from hvdtune.timeline import load, write_slices
from tests.kit import rank_files as files
from tests.kit.traces import ALL, KINETO, event, rows, write


@pytest.mark.parametrize("kind", ["chrome", "perfetto", "parquet"])
@pytest.mark.parametrize(
    "path", [*ALL, KINETO, files.GOLDEN / "rank-0.hvt"], ids=lambda path: path.name
)
def test_what_was_exported_reads_back_as_the_same_slices(path, kind, tmp_path):
    model = load(path)
    target = tmp_path / f"export.{kind}"
    write_slices(model, target, kind)
    back = load(target)
    assert rows(back) == rows(model)
    assert back.origin_unix_ns == model.origin_unix_ns
    assert back.ranks == model.ranks
    assert back.warnings == model.warnings


def test_slices_that_overlap_get_rows_on_which_they_nest(tmp_path):
    source = write(
        tmp_path / "trace.json",
        event("X", 0, "a", dur=10), event("X", 5, "b", dur=10), event("X", 6, "c", dur=2),
        event("X", 7, "d", dur=20),
    )  # fmt: skip
    target = tmp_path / "export.json"
    write_slices(load(source), target, "chrome")
    events = json.loads(target.read_text())["traceEvents"]
    by_row = defaultdict(list)
    for each in events:
        if each["ph"] == "X":
            by_row[each["tid"]].append(each["name"])
    assert sorted(by_row.values()) == [["a", "c"], ["b"], ["d"]]
    titles = {each["args"]["name"] for each in events if each["name"] == "thread_name"}
    assert titles == {"tid 2", "tid 2 (2)", "tid 2 (3)"}
    assert rows(load(target)) == rows(load(source))


def test_processes_of_several_files_stay_apart(tmp_path):
    for rank in (0, 1):
        write(tmp_path / f"rank{rank}.json", event("i", 5, f"n{rank}"))
    model = load(tmp_path)
    target = tmp_path / "merged.json"
    write_slices(model, target, "chrome")
    events = json.loads(target.read_text())["traceEvents"]
    assert len({each["pid"] for each in events if each["ph"] == "i"}) == 2
    assert rows(load(target)) == rows(model)


def test_an_open_slice_is_drawn_to_its_end_and_stays_open(tmp_path):
    source = write(tmp_path / "a.json", event("B", 1, "open", args={"x": 1}), event("i", 9))
    target = tmp_path / "export.json"
    write_slices(load(source), target, "chrome")
    drawn = next(e for e in json.loads(target.read_text())["traceEvents"] if e["ph"] == "X")
    assert drawn["dur"] == 8
    back = load(target).slices
    assert list(back["open"]) == [True, False]
    assert json.loads(back["args"][0]) == {"x": 1}


def test_a_name_that_ends_in_gz_packs(tmp_path):
    model = load(write(tmp_path / "a.json", event("i", 1)))
    write_slices(model, tmp_path / "b.json.gz", "chrome")
    assert gzip.decompress((tmp_path / "b.json.gz").read_bytes()).startswith(b'{"displayTimeUnit"')
    assert rows(load(tmp_path / "b.json.gz")) == rows(model)


def test_csv_has_the_columns_of_the_model(tmp_path):
    model = load(write(tmp_path / "a.json", event("X", 1, "a,b", dur=2)))
    write_slices(model, tmp_path / "a.csv", "csv")
    table = pd.read_csv(tmp_path / "a.csv")
    assert list(table.columns) == list(model.slices.columns)
    assert table["name"][0] == "a,b"


def test_an_export_can_be_exported_again(tmp_path):
    model = load(KINETO)
    write_slices(model, tmp_path / "one.json", "chrome")
    write_slices(load(tmp_path / "one.json"), tmp_path / "two.parquet", "parquet")
    assert rows(load(tmp_path / "two.parquet")) == rows(model)


def test_nothing_is_left_of_what_cannot_be_written(tmp_path):
    model = load(write(tmp_path / "a.json", event("i", 1)))
    with pytest.raises(OSError, match="No such file"):
        write_slices(model, tmp_path / "none" / "b.json", "chrome")
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]
