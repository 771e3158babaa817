"""What moving bytes costs on this host: read from users, kept in a file, measured by the core."""

import json
import os
import platform

import pytest

from hvdtune import doctor
from hvdtune.core import _native
from hvdtune.core.config import host_costs
from hvdtune.core.config.environment import Config
from hvdtune.errors import UsageError

COSTS = {name: 10.0 + index for index, name in enumerate(host_costs.NAMES)}
FLAWED = {
    "": "is not JSON",
    "[1, 2]": "must be a JSON object with exactly these numbers",
    json.dumps({"copy_ns": 1}): "must be a JSON object with exactly these numbers",
    json.dumps(COSTS | {"more": 1}): "must be a JSON object with exactly these numbers",
    json.dumps(COSTS | {"copy_ns": -1}): "copy_ns=-1, which is not a positive number",
    json.dumps(COSTS | {"copy_ns": True}): "copy_ns=True, which is not a positive number",
    json.dumps(COSTS | {"copy_ns": float("nan")}): "copy_ns=nan, which is not a positive number",
    json.dumps(COSTS | {"copy_ns": "1"}): "copy_ns='1', which is not a positive number",
}


def test_the_core_and_python_have_the_same_names():
    assert tuple(_native.default_host_costs()) == host_costs.NAMES


def test_what_is_measured_can_be_kept_and_found_again(tmp_path):
    measured = _native.measure_host_costs()
    assert host_costs.load(tmp_path / "cache") is None
    host_costs.store(tmp_path / "cache", measured)
    assert host_costs.load(tmp_path / "cache") == pytest.approx(measured, abs=1e-3)


@pytest.mark.parametrize("text", FLAWED)
def test_a_damaged_file_counts_for_nothing(tmp_path, text):
    host_costs.store(tmp_path, COSTS)
    assert host_costs.load(tmp_path) == COSTS
    host_costs.path_in(tmp_path).write_text(text)
    assert host_costs.load(tmp_path) is None


@pytest.mark.parametrize("place", ["file", "folder"])
def test_a_file_that_others_can_write_counts_for_nothing(tmp_path, place):
    host_costs.store(tmp_path, COSTS)
    path = host_costs.path_in(tmp_path)
    os.chmod(path if place == "file" else path.parent, 0o777)
    assert host_costs.load(tmp_path) is None


@pytest.mark.parametrize(
    ("module", "name", "value"), [(platform, "release", "9.9"), (os, "cpu_count", 1024)]
)
def test_another_machine_or_kernel_has_a_file_of_its_own(
    tmp_path, monkeypatch, module, name, value
):
    host_costs.store(tmp_path, COSTS)
    monkeypatch.setattr(module, name, lambda: value)
    assert host_costs.load(tmp_path) is None


def test_a_user_gives_json_or_a_file_or_asks_to_measure(tmp_path):
    text = json.dumps(COSTS)
    (tmp_path / "costs.json").write_text(text)
    for value in (text, str(tmp_path / "costs.json")):
        config = Config.from_environ({"HVDTUNE_HOST_COSTS": value})
        assert (config.data_path.host_costs, config.data_path.measures_costs) == (COSTS, False)
    config = Config.from_environ({"HVDTUNE_HOST_COSTS": "measure"})
    assert (config.data_path.host_costs, config.data_path.measures_costs) == (None, True)


@pytest.mark.parametrize(("text", "problem"), [(t, p) for t, p in FLAWED.items() if t])
def test_what_a_user_gives_must_be_costs(tmp_path, text, problem):
    (tmp_path / "costs.json").write_text(text)
    with pytest.raises(UsageError, match="HVDTUNE_HOST_COSTS=.*" + problem.replace("[", r"\[")):
        Config.from_environ({"HVDTUNE_HOST_COSTS": str(tmp_path / "costs.json")})


def test_a_file_that_is_not_there_is_named():
    with pytest.raises(UsageError, match=r"HVDTUNE_HOST_COSTS=gone.json .*No such file"):
        Config.from_environ({"HVDTUNE_HOST_COSTS": "gone.json"})


def test_doctor_shows_the_costs_of_this_host(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    finding = doctor._host_costs()
    assert (finding.state, "measures them" in finding.advice) == ("absent", True)
    host_costs.store(tmp_path / "hvdtune", COSTS)
    finding = doctor._host_costs()
    assert finding.state == "ok"
    assert finding.detail.startswith("copies 93.1 GB/s (85.3 beyond the cache)")
    assert finding.detail.endswith(str(host_costs.path_in(tmp_path / "hvdtune")))
    monkeypatch.setenv("HVDTUNE_HOST_COSTS", json.dumps(COSTS | {"copy_ns": 1024}))
    assert doctor._host_costs().detail.startswith("copies 1.0 GB/s")
