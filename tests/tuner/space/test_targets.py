import pytest

from hvdtune.core.config.knobs import default_setting, validate
from hvdtune.errors import UsageError
from hvdtune.tuner.space.targets import (
    holding,
    narrowed,
    of_any_size,
    target_of,
    varied_knob,
    with_native,
    with_varied,
)
from tests.kit.simulated_job import KNOBS


@pytest.mark.parametrize(
    ("environ", "changes", "variables"),
    [
        pytest.param({}, {}, {}, id="none-for-native-values"),
        pytest.param(
            {},
            {"cycle_time_ms": 2.5, "hierarchical_allreduce": True},
            {"HOROVOD_CYCLE_TIME": "2.5", "HOROVOD_HIERARCHICAL_ALLREDUCE": "1"},
            id="one-for-each-changed-knob",
        ),
        pytest.param(
            {"HOROVOD_FUSION_THRESHOLD": "33554432", "NCCL_ALGO": "NVLS"},
            {"fusion_threshold_bytes": 2**27},
            {"HOROVOD_FUSION_THRESHOLD": str(2**27)},
            id="none-for-what-the-environment-says",
        ),
    ],
)
def test_the_variables_of_a_setting(environ, changes, variables):
    target = target_of("horovod", environ)
    assert target.environ({**target.native, **changes}) == variables


def test_what_the_environment_says_is_native():
    target = target_of("horovod", {"HOROVOD_FUSION_THRESHOLD": "33554432", "NCCL_ALGO": "NVLS"})
    assert target.native["fusion_threshold_bytes"] == 33554432
    assert target.native["nccl_algo"] == "NVLS"


def test_a_range_is_widened_for_a_native_value_beyond_it():
    target = with_native(target_of("ddp", {}), {"ddp_bucket_cap_mb": 4096.0})
    assert target.knobs[0].high == target.knobs[0].default == 4096.0


def test_ddp_has_the_names_that_profiles_export():
    assert target_of("ddp", {}).searched == (
        "ddp_bucket_cap_mb",
        "ddp_first_bucket_mb",
        "ddp_gradient_as_bucket_view",
    )


def test_ranks_of_hvdtune_have_the_knob_table_and_what_a_process_takes_in():
    target = target_of("hvdtune", {}, cores=[0, 1, 2, 3], local_size=2, core_knobs=KNOBS)
    assert {knob.name for knob in KNOBS} <= {knob.name for knob in target.knobs}
    assert "cache_capacity" not in target.searched
    places = next(knob for knob in target.knobs if knob.name == "thread_affinity")
    assert places.choices == ("unset", "0,1", "2,3", "0,2")
    assert "nccl_proto" not in target.searched
    changes = {"omp_num_threads": 2, "thread_affinity": "2,3", "transport": "tcp"}
    setting = {**target.native, **changes, "nccl_proto": "LL128"}
    assert target.environ(setting) == {
        "OMP_NUM_THREADS": "2",
        "HVDTUNE_THREAD_AFFINITY": "2,3",
        "HVDTUNE_TRANSPORT": "tcp",
        "NCCL_PROTO": "LL128",
    }


def test_a_setting_holds_only_what_a_study_is_about():
    target = target_of("hvdtune", {}, core_knobs=KNOBS)
    names = [knob.name for knob in narrowed(target, ["transport", "ddp_bucket_cap_mb"]).knobs]
    sizes = ["ddp_bucket_cap_mb", "ddp_first_bucket_mb"]  # DDP is given both
    assert names == [*default_setting(KNOBS), *sizes, "transport"]


def test_a_bucket_that_a_script_has_passed_may_be_smaller_than_those_that_are_searched():
    target, setting = target_of("ddp", {}), {"ddp_bucket_cap_mb": 0.01}
    with pytest.raises(UsageError, match="out of range"):
        validate(setting, target.knobs)
    assert validate(setting, of_any_size(target.knobs)) == setting
    wide = holding(target, [setting, {"ddp_bucket_cap_mb": 2000.0, "nccl_buffsize": 1}])
    ends = {knob.name: (knob.low, knob.high) for knob in wide.knobs}
    assert ends["ddp_bucket_cap_mb"] == (0.01, 2000)
    assert [ends[name] for name in ("ddp_first_bucket_mb", "nccl_buffsize")] == [
        (1 / 16, 1024),
        (2**18, 2**26),
    ]


@pytest.mark.parametrize(
    ("text", "environ", "choices"),
    [
        pytest.param("NCCL_ALGO=Ring,Tree", {}, ("unset", "Ring", "Tree"), id="unset-is-one"),
        pytest.param("A=x,y", {"A": "y"}, ("y", "x"), id="its-own-value-is-the-first"),
    ],
)
def test_a_variable_is_varied_by_its_values(text, environ, choices):
    knob = varied_knob(text, environ)
    assert (knob.default, knob.choices) == (choices[0], choices)


def test_a_varied_variable_is_searched_and_set():
    target = with_varied(target_of("command", {}), ["NCCL_ALGO=Ring,Tree"], {})
    assert target.environ({"NCCL_ALGO": "Tree"}) == {"NCCL_ALGO": "Tree"}
    assert target.searched == ("NCCL_ALGO",)


@pytest.mark.parametrize(
    ("text", "environ", "default", "kind", "log"),
    [
        ("NCCL_BUFFSIZE=65536..16777216", {"NCCL_BUFFSIZE": "4194304"}, 4194304, "int", True),
        ("DELAY=0.5..1.5", {"DELAY": "1"}, 1.0, "float", False),
    ],
)
def test_a_variable_is_varied_in_a_range_around_what_it_is(text, environ, default, kind, log):
    knob = varied_knob(text, environ)
    assert (knob.kind, knob.default, knob.log) == (kind, default, log)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("NAME", "it must be NAME=A,B,C"),
        ("1A=x", "it must be NAME=A,B,C"),
        ("A=", "it must be NAME=A,B,C"),
        ("A=x,,y", "give at least two values"),
        ("A=unset", "give at least two values"),
        ("A=1..8", "A is not set; set it to the reference value"),
        ("B=1..8", "B=9 is outside"),
        ("B=8..1", "8 is not below 1"),
    ],
)
def test_what_cannot_be_varied_is_refused_in_a_sentence(text, why):
    with pytest.raises(UsageError, match=why):
        varied_knob(text, {"B": "9"})


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (
            lambda: target_of("horovod", {"HOROVOD_CYCLE_TIME": "fast"}),
            "HOROVOD_CYCLE_TIME: cycle_time_ms = 'fast'",
        ),
        (
            lambda: narrowed(target_of("hvdtune", {}, core_knobs=KNOBS), ["speed"]),
            "unknown knob speed; the knobs are ",
        ),
        (
            lambda: with_varied(target_of("horovod", {}), ["HOROVOD_CYCLE_TIME=1,2"], {}),
            "already has a knob",
        ),
    ],
    ids=["no-value-of-its-knob", "an-unknown-knob", "varied-beside-its-knob"],
)
def test_a_target_that_cannot_be_is_refused(make, why):
    with pytest.raises(UsageError, match=why):
        make()
