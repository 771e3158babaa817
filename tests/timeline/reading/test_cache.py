import json
import os
import zipfile

import pandas as pd
import pytest

from hvdtune.errors import TraceFormatError
from hvdtune.timeline import load, write_slices
from hvdtune.timeline.analysis.overview import overview
from hvdtune.timeline.model.statistics import statistics_of
from hvdtune.timeline.reading import cache
from tests.kit.traces import DATA, event, write

OLD = DATA / "sagemaker-debugger/smdebug_1e5f8e0c_horovod_timeline_607lines.json"


@pytest.fixture(scope="module")
def parsed():
    return load(OLD)


@pytest.fixture
def small(monkeypatch):
    """Every file is worth a cache."""
    monkeypatch.setattr(cache, "MIN_BYTES", 1)


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "trace.json"
    path.write_bytes(OLD.read_bytes())
    os.utime(path, ns=(10**18, 10**18))
    return path


@pytest.fixture
def parsings(monkeypatch):
    """Grows by one with every file that is parsed."""
    counted = []
    genuine = cache.parse

    def counting(*args, **more):
        counted.append(1)
        return genuine(*args, **more)

    monkeypatch.setattr(cache, "parse", counting)
    return counted


def test_a_cached_trace_is_the_same_model(parsed, small, trace):
    for model in (load(trace), load(trace)):
        pd.testing.assert_frame_equal(model.slices, parsed.slices)
        assert model.counts == parsed.counts
        assert model.ranks == parsed.ranks
    assert cache.cache_path(trace).exists()


def change(trace):
    text = trace.read_bytes().replace(b'"CYCLE_START"', b'"CYCLE_START', 1)
    trace.write_bytes(text + b" ")


def damage_its_cache(trace):
    kept = cache.cache_path(trace)
    kept.write_bytes(kept.read_bytes()[:-100])


@pytest.mark.parametrize(
    ("happens", "parses", "lost"),
    [
        pytest.param(lambda trace: None, 1, 0, id="once"),
        pytest.param(os.utime, 1, 0, id="once where a copy has another time"),
        pytest.param(change, 2, 1, id="again when it has changed"),
        pytest.param(damage_its_cache, 2, 0, id="again when its cache is damaged"),
    ],
)
def test_a_trace_is_parsed(happens, parses, lost, small, trace, parsings):
    before = load(trace)
    happens(trace)
    for _ in range(2):
        assert len(load(trace).slices) == len(before.slices) - lost
    overview([trace])
    assert len(parsings) == parses


def test_warnings_of_a_cached_trace_name_the_file_as_it_is_called_now(small, tmp_path):
    path = tmp_path / "a.json"
    path.write_bytes((DATA / "speedscope/simple-partial.json").read_bytes())
    load(path)
    path.rename(tmp_path / "b.json")
    cache.cache_path(path).rename(cache.cache_path(tmp_path / "b.json"))
    assert load(tmp_path / "b.json").warnings[0].startswith(f"{tmp_path}/b.json: ends at byte")


def test_where_no_cache_can_be_written_the_trace_is_read_all_the_same(small, trace, monkeypatch):
    def refused(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(cache, "replacement", refused)
    assert len(load(trace).slices) == 317
    assert len(overview([trace]).files) == 1
    assert not cache.cache_path(trace).exists()


def test_what_is_no_trace_leaves_no_cache(small, tmp_path):
    (tmp_path / "a.json").write_text("[1, 2")
    with pytest.raises(TraceFormatError):
        load(tmp_path / "a.json")
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_statistics_from_the_cache_are_those_of_the_model(small, trace):
    kept = overview([trace]).files[0].statistics
    computed = statistics_of(load(trace))
    assert kept.slices == computed.slices
    assert {row for row in kept.kinds if row.kind != "READY"} == {
        row for row in computed.kinds if row.kind != "READY"
    }
    assert kept.names == computed.names


SAID = ["recording stopped at the size cap"]
EXPORT = {"version": 1, "files": [{"path": "a"}], "tracks": [], "warnings": SAID}


@pytest.mark.parametrize(
    "known",
    [
        pytest.param({"hvdtune": 1, "warnings": SAID}, id="recording"),
        pytest.param({"hvdtune_files": EXPORT}, id="export"),
    ],
)
def test_statistics_from_the_cache_say_what_was_known_of_it(known, small, tmp_path):
    path = write(tmp_path / "a.json", event("i", 1), otherData=known)
    assert list(overview([path]).warnings()) == load(path).warnings == SAID


def test_a_large_file_that_cannot_be_read_is_told(small, trace, tmp_path):
    (tmp_path / "damaged.json").write_text('[{"ph":')
    found = overview([tmp_path / "damaged.json", trace])
    assert "damaged.json" in found.warnings()[0]


@pytest.mark.parametrize("kind", ["hvt", "zip", "parquet"])
def test_statistics_of_large_files_of_other_kinds(kind, small, tmp_path):
    path = tmp_path / f"large.{kind}"
    own = DATA.parents[1] / "golden/timeline/rank-0.hvt"
    if kind == "hvt":
        path.write_bytes(own.read_bytes())
    elif kind == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("a.json", json.dumps([event("i", 1)]))
    else:
        write_slices(load(own), path, "parquet")
    assert overview([path]).document()["slices"] == len(load(path).slices) > 0


def test_a_folder_does_not_take_a_cache_for_a_trace(small, tmp_path):
    write(tmp_path / "a.json", event("i", 1))
    assert len(load(tmp_path).slices) == len(load(tmp_path).slices) == 1
