import dataclasses
import shlex
from pathlib import Path
from typing import get_args

import pytest
import yaml

from hvdtune.cli.config_file import KEYS, read_config_file
from hvdtune.core.config.environment import Config
from hvdtune.core.config.knobs import Value, default_setting
from hvdtune.tuner.results.exports import ExportTarget, export_profile
from hvdtune.tuner.results.profile import Profile, ProfileVerdict
from hvdtune.tuner.stats.posterior import Belief

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


NO_CACHE = "the cache's capacity turns it off"


@pytest.mark.parametrize(
    ("knobs", "target", "said"),
    [
        ({"cache_enabled": False}, "horovod-env", (NO_CACHE, "HOROVOD_CACHE_CAPACITY=0")),
        ({"cache_enabled": False}, "horovod-yaml", (NO_CACHE, "cache_capacity: 0")),
        ({"cycle_time_ms": 0.0}, "horovod-env", ("polls without a pause",)),
    ],
    ids=["no-cache-env", "no-cache-yaml", "no-cycle-time"],
)
def test_what_is_otherwise_at_horovod_is_said(
    knobs: dict[str, Value], target: ExportTarget, said: tuple[str, ...]
) -> None:
    text = export_profile(profile(**knobs), target)
    assert [words for words in said if words not in text] == []


@pytest.mark.parametrize(
    ("target", "knobs", "words"),
    [
        ("nccl", {"allreduce_algorithm": "ring"}, {"NCCL_ALGO": "Ring"}),
        ("nccl", {"allreduce_algorithm": "doubling"}, {}),
        ("nccl", {"channels": 4}, {"NCCL_SOCKET_NTHREADS": "1", "NCCL_NSOCKS_PERTHREAD": "4"}),
        ("nccl", {}, {}),
        ("ddp", {}, {"bucket_cap_mb": "8.25"}),
    ],
)
def test_nccl_and_ddp_get_only_what_they_have(
    target: ExportTarget, knobs: dict[str, Value], words: dict[str, str]
) -> None:
    assert assignments(export_profile(profile(**knobs), target)) == words


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


@pytest.mark.parametrize("improved", [True, False])
def test_what_nothing_proves_says_so(improved: bool) -> None:
    text = export_profile(profile(improved=improved), "env")
    assert ("This setting is not proved" in text) != improved


def test_what_was_chosen_without_proof_says_what_is_expected_of_it() -> None:
    other = profile(improved=False)
    expected = dataclasses.replace(other.verdict, expected=Belief(1.8, -0.3, 3.9))
    for target in get_args(ExportTarget):
        text = export_profile(dataclasses.replace(other, verdict=expected), target)
        assert (
            "# This setting is not proved better than the default: expected +1.8 % over "
            "launches, not yet proved (95 %: -0.3 to +3.9 %).\n"
        ) in text


def of_adapter(adapter: str, setting: dict[str, Value]) -> Profile:
    evidence = ProfileVerdict(True, 7.0, (6.0, 8.0), 12, 12, 0.6, "+7.0 % [6.0, 8.0] 95 % CI")
    measured = {"mode": "restart", "adapter": adapter}
    return Profile(1, setting, setting, evidence, measured, "2026-01-02T03:04:05+00:00")


OF_DDP: dict[str, Value] = {
    "ddp_bucket_cap_mb": 50.0,
    "ddp_first_bucket_mb": 2.0,
    "ddp_gradient_as_bucket_view": True,
    "NCCL_PROTO": "LL",
}
OF_HOROVOD: dict[str, Value] = {"cycle_time_ms": 2.5, "num_nccl_streams": 2, "nccl_algo": "unset"}


@pytest.mark.parametrize(
    ("adapter", "setting", "target", "words"),
    [
        ("ddp", OF_DDP, "ddp", {"bucket_cap_mb": "50", "gradient_as_bucket_view": "True"}),
        ("ddp", OF_DDP, "env", {"NCCL_PROTO": "LL"}),
        (
            "horovod",
            OF_HOROVOD,
            "env",
            {"HOROVOD_CYCLE_TIME": "2.5", "HOROVOD_NUM_NCCL_STREAMS": "2"},
        ),
    ],
    ids=["ddps-arguments", "ddps-variables", "horovods-variables"],
)
def test_a_setting_of_another_runtime_goes_to_its_own_names(
    adapter: str, setting: dict[str, Value], target: ExportTarget, words: dict[str, str]
) -> None:
    assert assignments(export_profile(of_adapter(adapter, setting), target)) == words


def test_ddps_first_bucket_is_said_in_bytes() -> None:
    text = export_profile(of_adapter("ddp", OF_DDP), "ddp")
    assert "2097152 bytes" in text
    assert "under hvdtune" not in text


@pytest.mark.parametrize("target", ["horovod-env", "nccl", "ddp"])
def test_comments_of_an_export_give_sizes_their_units(target: ExportTarget) -> None:
    assert "# chunk_bytes=512 KiB: no counterpart in " in export_profile(profile(), target)


@pytest.mark.parametrize("target", get_args(ExportTarget))
def test_only_our_variables_have_the_scripts_knobs(target: ExportTarget) -> None:
    own: dict[str, Value] = {"script.chunks": 2, "script.way": "it's a"}
    text = export_profile(profile(**own), target)
    if target == "env":
        environ = dict(word.split("=", 1) for word in shlex.split(text, comments=True))
        assert Config.from_environ(environ).setting == {**TUNED, **own}
    else:
        assert "# script.chunks=2: a knob of the script" in text
