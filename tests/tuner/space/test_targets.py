import pytest

from hvdtune.core.config.knobs import default_setting
from hvdtune.errors import UsageError
from hvdtune.tuner.space.targets import narrowed, target_of, varied_knob, with_native, with_varied
from tests.kit.simulated_job import KNOBS


def test_a_knob_at_its_native_value_leaves_the_variable_alone():
    target = target_of("horovod", {})
    setting = {**target.native, "cycle_time_ms": 2.5, "hierarchical_allreduce": True}
    assert target.environ(setting) == {
        "HOROVOD_CYCLE_TIME": "2.5",
        "HOROVOD_HIERARCHICAL_ALLREDUCE": "1",
    }
    assert target.environ(target.native) == {}


def test_what_the_environment_says_is_what_others_are_compared_with():
    target = target_of("horovod", {"HOROVOD_FUSION_THRESHOLD": "33554432", "NCCL_ALGO": "NVLS"})
    assert target.native["fusion_threshold_bytes"] == 33554432
    assert target.native["nccl_algo"] == "NVLS"
    setting = {**target.native, "fusion_threshold_bytes": 2**27}
    assert target.environ(setting) == {"HOROVOD_FUSION_THRESHOLD": str(2**27)}


def test_a_range_is_widened_for_a_native_value_beyond_it():
    target = with_native(target_of("ddp", {}), {"ddp_bucket_cap_mb": 4096.0})
    assert target.knobs[0].high == target.knobs[0].default == 4096.0


def test_a_variable_that_is_no_value_of_its_knob_is_refused():
    with pytest.raises(UsageError, match="HOROVOD_CYCLE_TIME: cycle_time_ms = 'fast'"):
        target_of("horovod", {"HOROVOD_CYCLE_TIME": "fast"})


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
    setting = {**target.native, "omp_num_threads": 2, "thread_affinity": "2,3", "transport": "tcp"}
    assert target.environ(setting) == {
        "OMP_NUM_THREADS": "2",
        "HVDTUNE_THREAD_AFFINITY": "2,3",
        "HVDTUNE_TRANSPORT": "tcp",
    }


def test_a_setting_holds_only_what_a_study_is_about():
    target = target_of("hvdtune", {}, core_knobs=KNOBS)
    names = [knob.name for knob in narrowed(target, ["transport"]).knobs]
    assert names == [*default_setting(KNOBS), "transport"]
    with pytest.raises(UsageError, match="unknown knob speed; the knobs are "):
        narrowed(target, ["speed"])


def test_a_variable_is_varied_by_its_values_and_unset_is_one():
    knob = varied_knob("NCCL_ALGO=Ring,Tree", {})
    assert (knob.default, knob.choices) == ("unset", ("unset", "Ring", "Tree"))
    assert varied_knob("A=x,y", {"A": "y"}).choices == ("y", "x")
    target = with_varied(target_of("command", {}), ["NCCL_ALGO=Ring,Tree"], {})
    assert target.environ({"NCCL_ALGO": "Tree"}) == {"NCCL_ALGO": "Tree"}
    assert target.searched == ("NCCL_ALGO",)


def test_a_variable_is_varied_in_a_range_around_what_it_is():
    knob = varied_knob("NCCL_BUFFSIZE=65536..16777216", {"NCCL_BUFFSIZE": "4194304"})
    assert (knob.kind, knob.default, knob.log) == ("int", 4194304, True)
    knob = varied_knob("DELAY=0.5..1.5", {"DELAY": "1"})
    assert (knob.kind, knob.default, knob.log) == ("float", 1.0, False)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("NAME", "want NAME=A,B,C"),
        ("1A=x", "want NAME=A,B,C"),
        ("A=", "want NAME=A,B,C"),
        ("A=x,,y", "nothing to choose"),
        ("A=unset", "nothing to choose"),
        ("A=1..8", "A is not set; set it to the value"),
        ("B=1..8", "B=9 is outside"),
        ("B=8..1", "8 is not below 1"),
    ],
)
def test_what_cannot_be_varied_is_refused_in_a_sentence(text, why):
    with pytest.raises(UsageError, match=why):
        varied_knob(text, {"B": "9"})


def test_a_variable_that_has_a_knob_is_not_varied_beside_it():
    with pytest.raises(UsageError, match="has a knob of its own"):
        with_varied(target_of("horovod", {}), ["HOROVOD_CYCLE_TIME=1,2"], {})
