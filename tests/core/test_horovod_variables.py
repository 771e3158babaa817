import os

import pytest

from hvdtune.core.config.environment import Config, launch_defaults, launcher_values, read_setting
from hvdtune.core.config.knobs import Knob
from hvdtune.errors import UsageError
from hvdtune.horovod.vocabulary import PLACE, VARIABLES
from tests.kit.configs import flat
from tests.kit.horovod_build import BUILD_TIME

_KNOBS = (
    Knob("fusion_threshold_bytes", "bytes", "int", 0, 2**29, True, 2**27, "live"),
    Knob("cycle_time_ms", "ms", "float", 0, 50, True, 1.0, "live"),
    Knob("cache_capacity", "entries", "int", 0, 65536, True, 1024, "reinit"),
    Knob("hierarchical_allreduce", "", "bool", 0, 1, False, False, "live", 2),
    Knob("hierarchical_allgather", "", "bool", 0, 1, False, False, "live", 2),
    Knob("torus_allreduce", "", "bool", 0, 1, False, False, "live", 2),
)
# Variable, a value, and what becomes of it: a knob, or a field of Config.
_HONOURED = [
    ("HOROVOD_FUSION_THRESHOLD", "33554432", "fusion_threshold_bytes", 33554432),
    ("HOROVOD_CYCLE_TIME", "2.5", "cycle_time_ms", 2.5),
    ("HOROVOD_CACHE_CAPACITY", "0", "cache_capacity", 0),
    ("HOROVOD_HIERARCHICAL_ALLREDUCE", "true", "hierarchical_allreduce", True),
    ("HOROVOD_HIERARCHICAL_ALLGATHER", "on", "hierarchical_allgather", True),
    ("HOROVOD_TORUS_ALLREDUCE", "No", "torus_allreduce", False),
    ("HOROVOD_CONTROLLER", "GLOO", "controller", "hvdtune"),
    ("HOROVOD_CPU_OPERATIONS", "mpi", "cpu_operations", "mpi"),
    ("HOROVOD_GPU_OPERATIONS", "NCCL", "gpu_operations", "auto"),
    ("HOROVOD_GPU_OPERATIONS", "MPI", "gpu_operations", "host"),
    ("HOROVOD_THREAD_AFFINITY", "3,1", "thread_core", 3),
    ("HOROVOD_STALL_CHECK_DISABLE", "yes", "hang_warning_s", 0.0),
    ("HOROVOD_STALL_CHECK_DISABLE", "0", "hang_warning_s", 5.0),
    ("HOROVOD_STALL_CHECK_TIME_SECONDS", "60", "hang_warning_s", 60.0),
    ("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "0", "hang_abort_s", 0.0),
    ("HOROVOD_LOG_LEVEL", "TRACE", "log_level", "debug"),
    ("HOROVOD_LOG_LEVEL", "fatal", "log_level", "error"),
    ("HOROVOD_START_TIMEOUT", "70", "start_s", 70.0),
    ("HOROVOD_GLOO_TIMEOUT_SECONDS", "80", "start_s", 80.0),
    ("HOROVOD_GLOO_IFACE", "lo", "own_address", "127.0.0.1"),
]
_LAUNCHERS = [
    ("HOROVOD_AUTOTUNE", "True", True),
    ("HOROVOD_AUTOTUNE_LOG", "log.csv", "log.csv"),
    ("HOROVOD_AUTOTUNE_WARMUP_SAMPLES", "0", 0),
    ("HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", "5", 5),
    ("HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES", "30", 30),
    ("HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE", "0.8", 0.8),
    ("HOROVOD_TIMELINE", "trace.json", "trace.json"),
    ("HOROVOD_TIMELINE_MARK_CYCLES", "1", True),
    ("HOROVOD_ELASTIC_TIMEOUT", "60", 60.0),
]
_IDLE = [row.variable for row in VARIABLES if row.idle]
_SWITCHES = [row.variable for row in VARIABLES if row.parse.__name__ in ("switch", "_no_warning")]
_NUMBERS = [
    row.variable
    for row in VARIABLES
    if row.parse.__name__ in ("whole", "amount", "count", "positive", "share", "_others", "wholes")
]


def read(environ):
    config = Config.from_environ(environ, _KNOBS)
    return flat(config) | dict(config.setting)


@pytest.mark.parametrize(("variable", "text", "name", "value"), _HONOURED)
def test_a_variable_of_horovods_is_honoured(variable, text, name, value):
    assert read({variable: text})[name] == value


@pytest.mark.parametrize(("variable", "text", "value"), _LAUNCHERS)
def test_some_are_for_the_launcher(variable, text, value):
    assert launcher_values({variable: text}) == {variable: value}


@pytest.mark.parametrize("variable", _IDLE)
def test_some_have_nothing_to_do_and_change_nothing(variable):
    assert read({variable: "1"}) == read({})


@pytest.mark.parametrize("row", VARIABLES, ids=lambda row: row.variable)
def test_every_variable_has_exactly_one_fate(row):
    assert sum(map(bool, (row.sets, row.launcher, row.idle, row.refused))) == 1


def test_every_variable_is_tested():
    named = {row[0] for row in _HONOURED + _LAUNCHERS} | {*_IDLE} | PLACE
    assert {row.variable for row in VARIABLES} - named == {"HOROVOD_ELASTIC"}


def test_no_variable_is_listed_twice():
    names = [row.variable for row in VARIABLES] + list(BUILD_TIME)
    assert len(names) == len(set(names))


@pytest.mark.parametrize("variable", _SWITCHES)
@pytest.mark.parametrize("text", ["ture", "2", "-1"])
def test_a_word_that_is_no_switch_is_refused(variable, text):
    with pytest.raises(UsageError, match=f"{variable}={text} is neither 0 nor 1"):
        launch_defaults(environ={variable: text})


@pytest.mark.parametrize("variable", _NUMBERS)
def test_a_text_that_is_no_number_is_refused(variable):
    with pytest.raises(UsageError, match=f"{variable}=64MB is not a"):
        Config.from_environ({variable: "64MB"}, _KNOBS)


@pytest.mark.parametrize(
    ("environ", "fault"),
    [
        ({"HOROVOD_ELASTIC": "1"}, "started by `hvdtune run --min-np`"),
        ({"HOROVOD_CONTROLLER": "mpl"}, "HOROVOD_CONTROLLER=mpl is not one of mpi, gloo, ccl"),
        ({"HOROVOD_LOG_LEVEL": "loud"}, "HOROVOD_LOG_LEVEL=loud is not one of trace, debug"),
        ({"HOROVOD_GLOO_IFACE": "nosuch0"}, "is not one of this host's interfaces"),
        ({"HOROVOD_FUSION_THRESHOLD": "-1"}, "HOROVOD_FUSION_THRESHOLD=-1 is negative"),
        (
            {"HOROVOD_MPI_THREADS_DISABLE": "1", "HOROVOD_CPU_OPERATIONS": "mpi"},
            "from a thread of its own",
        ),
    ],
)
def test_what_cannot_be_is_refused_by_launcher_and_rank(environ, fault):
    with pytest.raises(UsageError, match=fault):
        Config.from_environ(environ, _KNOBS)
    with pytest.raises(UsageError, match=fault):
        launch_defaults(environ=environ)


_START_BY = "start the ranks with `hvdtune run`, mpirun, srun"


@pytest.mark.parametrize(
    ("environ", "fault"),
    [
        ({"HOROVOD_AUTOTUNE": "1"}, "use `hvdtune run"),
        ({"HOROVOD_SIZE": "2"}, "^HOROVOD_SIZE is 2, but HOROVOD_RANK is not set"),
        ({"HOROVOD_RANK": "1"}, _START_BY),
        ({"HOROVOD_GLOO_RENDEZVOUS_ADDR": "10.0.0.1"}, _START_BY),
        ({"HOROVOD_GLOO_RENDEZVOUS_PORT": "4000"}, _START_BY),
    ],
)
def test_a_process_without_our_launcher_refuses_what_only_a_launcher_can_give(environ, fault):
    with pytest.raises(UsageError, match=fault):
        Config.from_environ(environ, _KNOBS)
    assert launch_defaults(environ=environ).place.size == 1


def test_a_place_that_says_alone_is_no_place():
    environ = {"HOROVOD_RANK": "0", "HOROVOD_SIZE": "1", "HOROVOD_GLOO_RENDEZVOUS_PORT": "-1"}
    assert Config.from_environ(environ, _KNOBS).place.size == 1


def test_a_place_told_to_a_script_under_mpirun_is_left_to_it():
    environ = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}
    environ |= {"HOROVOD_RANK": "1", "HOROVOD_SIZE": "2"}
    assert Config.from_environ(environ, _KNOBS).mpi.launcher.size == 2


@pytest.mark.parametrize(
    ("environ", "name", "value"),
    [
        ({"HOROVOD_LOG_LEVEL": "debug", "HVDTUNE_LOG_LEVEL": "error"}, "log_level", "error"),
        ({"HOROVOD_START_TIMEOUT": "7", "HOROVOD_GLOO_TIMEOUT_SECONDS": "8"}, "start_s", 7),
    ],
    ids=["ours-before-horovods", "the-starts-before-gloos"],
)
def test_of_two_variables_one_comes_first(environ, name, value):
    assert read(environ)[name] == value


@pytest.mark.parametrize("variable", sorted(PLACE))
def test_a_place_asks_nothing_of_a_launcher(variable):
    assert launcher_values({variable: "1"}) == {}


def test_a_dynamic_timeline_needs_no_asking():
    assert launcher_values({"HOROVOD_TIMELINE": "DYNAMIC"}) == {}


def test_an_empty_variable_is_not_set():
    assert read({row.variable: "" for row in VARIABLES}) == read({})
    assert read_setting({"HOROVOD_CYCLE_TIME": ""}, _KNOBS) == {}


@pytest.mark.parametrize(
    ("local", "fault"),
    [
        ({"HVDTUNE_LOCAL_RANK": "1", "HVDTUNE_LOCAL_SIZE": "2"}, None),
        (
            {"HVDTUNE_LOCAL_SIZE": "3"},
            "HOROVOD_THREAD_AFFINITY=0, 5 lists 2 cores, but a host has 3 ranks",
        ),
        ({"OMPI_COMM_WORLD_LOCAL_RANK": "1"}, None),
        (
            {"SLURM_STEP_ID": "0", "SLURM_PROCID": "7", "SLURM_NTASKS": "8", "SLURM_LOCALID": "1"},
            None,
        ),
        (
            {},
            "but Open MPI's mpirun sets no local rank",
        ),
    ],
)
def test_thread_affinity_has_a_core_for_each_rank_of_a_host(local, fault):
    environ = {"HOROVOD_THREAD_AFFINITY": "0, 5"} | local
    if not any(name.startswith(("HVDTUNE_", "SLURM_")) for name in local):
        environ |= {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}
    if fault is None:
        assert Config.from_environ(environ, _KNOBS).data_path.thread_core == 5
        return
    with pytest.raises(UsageError, match=fault):
        Config.from_environ(environ, _KNOBS)


def test_the_environment_of_this_process_is_the_default(monkeypatch):
    monkeypatch.setenv("HOROVOD_AUTOTUNE_LOG", "x.csv")
    assert launcher_values()["HOROVOD_AUTOTUNE_LOG"] == os.environ["HOROVOD_AUTOTUNE_LOG"]
