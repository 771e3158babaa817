from pathlib import Path
from typing import get_args

import pytest
import yaml

from hvdtune.cli.config_file import KEYS, read_config_file
from hvdtune.core.config.environment import Config
from hvdtune.core.config.knobs import Value, default_setting
from hvdtune.tuner.results.exports import ExportTarget, export_profile
from hvdtune.tuner.results.profile import Profile, ProfileVerdict

TUNED: dict[str, Value] = {
    **default_setting(),
    "fusion_threshold_bytes": 8650752,
    "cycle_time_ms": 0.2,
    "hierarchical_allreduce": True,
    "cache_capacity": 512,
}


def profile(improved: bool = True, **knobs: Value) -> Profile:
    evidence = ProfileVerdict(improved, 7.0, (6.0, 8.0), 32, 3, 0.6, "+7.0 % [6.0, 8.0] 95 % CI")
    setting = TUNED | knobs
    return Profile(1, setting, default_setting(), evidence, {}, "2026-01-02T03:04:05+00:00")


def assignments(text: str) -> dict[str, str]:
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


def test_our_variables_give_the_whole_setting_back() -> None:
    environ = assignments(export_profile(profile(), "env"))

    assert Config.from_environ(environ).setting == TUNED


def test_horovods_variables_give_back_what_horovod_knows() -> None:
    environ = assignments(export_profile(profile(), "horovod-env"))
    known = Config.from_environ(environ).setting

    assert all(name.startswith("HOROVOD_") for name in environ)
    assert {name: TUNED[name] for name in known} == known
    assert set(TUNED) - set(known) == {
        "chunk_bytes",
        "allreduce_algorithm",
        "channels",
        "cache_enabled",
    }


def test_horovods_file_is_one_that_is_read(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(export_profile(profile(), "horovod-yaml"))
    leaves = read_config_file(path)

    assert {name: leaf.value for name, leaf in leaves.items()} == {
        "fusion_threshold_mb": 8.25,
        "cycle_time_ms": 0.2,
        "cache_capacity": 512,
        "hierarchical_allreduce": True,
        "hierarchical_allgather": False,
        "torus_allreduce": False,
    }
    assert {f"params.{key}" for key in yaml.safe_load(path.read_text())["params"]} <= set(KEYS)


@pytest.mark.parametrize("target", ["horovod-env", "horovod-yaml"])
def test_a_cache_that_is_off_has_no_capacity_at_horovod(target: ExportTarget) -> None:
    text = export_profile(profile(cache_enabled=False), target)

    assert "cache_capacity: 0" in text or "HOROVOD_CACHE_CAPACITY=0" in text
    assert "the cache's capacity has it off" in text


def test_a_cycle_without_time_spins_at_horovod_and_it_says_so() -> None:
    assert "turns without a pause" in export_profile(profile(cycle_time_ms=0.0), "horovod-env")


@pytest.mark.parametrize(
    ("knobs", "words"),
    [
        ({"allreduce_algorithm": "ring"}, {"NCCL_ALGO": "Ring"}),
        ({"allreduce_algorithm": "doubling"}, {}),
        ({"channels": 4}, {"NCCL_SOCKET_NTHREADS": "1", "NCCL_NSOCKS_PERTHREAD": "4"}),
        ({}, {}),
    ],
)
def test_nccl_gets_only_what_it_has(knobs: dict[str, Value], words: dict[str, str]) -> None:
    assert assignments(export_profile(profile(**knobs), "nccl")) == words


def test_ddp_gets_its_bucket_size() -> None:
    assert assignments(export_profile(profile(), "ddp")) == {"bucket_cap_mb": "8.25"}


@pytest.mark.parametrize("target", get_args(ExportTarget))
def test_every_knob_is_carried_or_said_to_have_no_counterpart(target: ExportTarget) -> None:
    text = export_profile(profile(), target)

    carried = {
        "fusion_threshold_bytes": ("FUSION_THRESHOLD", "fusion_threshold_mb", "bucket_cap_mb"),
        "cycle_time_ms": ("CYCLE_TIME",),
        "cache_capacity": ("CACHE_CAPACITY",),
    }
    for knob in TUNED:
        spellings = (knob, knob.upper(), *carried.get(knob, ()))
        assert any(spelling in text for spelling in spellings), knob


def test_what_nothing_proves_says_so() -> None:
    assert "Nothing proves" in export_profile(profile(improved=False), "env")
    assert "Nothing proves" not in export_profile(profile(), "env")


def of_adapter(adapter: str, setting: dict[str, Value]) -> Profile:
    evidence = ProfileVerdict(True, 7.0, (6.0, 8.0), 12, 12, 0.6, "+7.0 % [6.0, 8.0] 95 % CI")
    measured = {"mode": "restart", "adapter": adapter}
    return Profile(1, setting, setting, evidence, measured, "2026-01-02T03:04:05+00:00")


def test_ddps_own_setting_goes_to_its_arguments() -> None:
    setting: dict[str, Value] = {
        "ddp_bucket_cap_mb": 50.0,
        "ddp_first_bucket_mb": 2.0,
        "ddp_gradient_as_bucket_view": True,
        "NCCL_PROTO": "LL",
    }
    text = export_profile(of_adapter("ddp", setting), "ddp")

    assert assignments(text) == {"bucket_cap_mb": "50", "gradient_as_bucket_view": "True"}
    assert "2097152 bytes" in text
    assert "under hvdtune" not in text
    assert assignments(export_profile(of_adapter("ddp", setting), "env")) == {"NCCL_PROTO": "LL"}


def test_variables_of_another_runtime_are_its_own() -> None:
    setting: dict[str, Value] = {"cycle_time_ms": 2.5, "num_nccl_streams": 2, "nccl_algo": "unset"}
    text = export_profile(of_adapter("horovod", setting), "env")

    assert assignments(text) == {"HOROVOD_CYCLE_TIME": "2.5", "HOROVOD_NUM_NCCL_STREAMS": "2"}
