"""Horovod's small helpers, imported from where they lie."""

import inspect
import os
import threading

import pytest

from hvdtune.alias.horovod.common import exceptions, util
from hvdtune.alias.horovod.common.basics import HorovodBasics
from hvdtune.alias.horovod.runner.common.util import env, hosts
from hvdtune.alias.horovod.runner.util import threads
from hvdtune.alias.horovod.torch import mpi_ops


def test_env_sets_and_puts_back_variables(monkeypatch):
    monkeypatch.setenv("HVDTUNE_TEST_A", "before")
    with util.env(HVDTUNE_TEST_A="inside", HVDTUNE_TEST_B=None):
        assert os.environ["HVDTUNE_TEST_A"] == "inside"
    assert os.environ["HVDTUNE_TEST_A"] == "before"


def test_a_cached_function_is_called_once_for_the_same_arguments():
    calls = []

    @util._cache
    def add(a, b=0):
        calls.append((a, b))
        return a + b

    assert [add(1), add(1), add(1, b=2), add(b=2, a=1), add(a=1, b=2)] == [1, 1, 3, 3, 3]
    assert calls == [(1, 0), (1, 2), (1, 2)]


def test_the_available_extensions_are_those_that_import():
    assert util.extension_available("torch")
    assert util.extension_available("tensorflow", verbose=True)
    assert not util.extension_available("mxnet")
    util.check_extension("horovod.torch", "HOROVOD_WITH_PYTORCH", __file__, "mpi_lib_v2")
    with pytest.raises(ImportError, match=r"horovod\.mxnet is not available"):
        util.check_extension("horovod.mxnet", "HOROVOD_WITH_MXNET", __file__)


def test_what_was_built_is_told():
    assert util.gloo_built(verbose=True) is True
    assert util.mpi_built() in (True, False)
    absent = (util.nccl_built, util.ddl_built, util.ccl_built, util.cuda_built, util.rocm_built)
    assert [built() for built in absent] == [False] * 5
    assert util.get_ext_suffix().endswith(".so")


def test_average_gives_way_to_op():
    basics = HorovodBasics(__file__)
    choose = util.get_average_backwards_compatibility_fun(basics)
    assert [choose(None, None), choose(basics.Max, None)] == [basics.Average, basics.Max]
    with pytest.warns(DeprecationWarning, match="average= has been replaced"):
        assert choose(None, False) == basics.Sum
    with pytest.raises(ValueError, match="not both"):
        choose(basics.Max, True)


@pytest.mark.parametrize(
    ("version", "target", "wanted"),
    [("1.13.0", "1.9.0", True), ("2.13.0+cpu", "2.13.0", True), ("2.0.0rc1", "2.0.0", False)],
)
def test_versions_are_compared_as_versions(version, target, wanted):
    assert util.is_version_greater_equal_than(version, target) is wanted


@pytest.mark.parametrize("target", ["2.0", (2, 0, 0)])
def test_a_version_that_is_not_three_numbers_is_refused(target):
    with pytest.raises(ValueError, match="2"):
        util.is_version_greater_equal_than("2.0.0", target)


@pytest.mark.parametrize(
    ("items", "parts", "lists"),
    [([1, 2, 3, 4, 5], 2, [[1, 2, 3], [4, 5]]), ([1], 3, [[1], [], []])],
)
def test_lists_are_split_evenly(items, parts, lists):
    assert util.split_list(items, parts) == lists


def test_numbers_and_values_are_told_apart():
    assert [n for n in range(10) if util.num_rank_is_power_2(n)] == [1, 2, 4, 8]
    assert (util.is_iterable("text"), util.is_iterable(3)) == (True, False)


def test_a_version_mismatch_is_told_as_it_is_raised():
    text = exceptions.get_version_mismatch_message("torch", "1.0", "2.0")
    assert "1.0" in text and "2.0" in text
    assert issubclass(exceptions.HorovodVersionMismatchError, ImportError)
    assert exceptions.HostsUpdatedInterrupt(skip_sync=True).skip_sync


@pytest.mark.parametrize("given", ["HOROVOD_RANK", "HOROVOD_SIZE"])
def test_half_a_place_is_a_runtime_error(monkeypatch, given):
    monkeypatch.setenv(given, "1")
    with pytest.raises(RuntimeError, match=f"{given} is set, but HOROVOD_"):
        env.get_env_rank_and_size()


def test_ranks_are_assigned_to_hosts_in_order():
    listed = hosts.parse_hosts("a:2,b:1")
    assert [(host.hostname, host.slots) for host in listed] == [("a", 2), ("b", 1)]
    assigned = hosts.get_host_assignments(listed, 2)
    assert assigned[2] == hosts.SlotInfo("b", 2, 0, 1, 3, 1, 2)
    assert [slot.rank for slot in hosts.get_host_assignments(listed, 1, 2)] == [0, 1]
    with pytest.raises(ValueError, match="the hosts have 3 slots, but 4 are needed"):
        hosts.get_host_assignments(listed, 4)


def test_host_lists_and_files_are_read(tmp_path):
    file = tmp_path / "hosts"
    file.write_text("a slots=2\nb slots=1\n")
    assert hosts.parse_host_files(str(file)) == "a:2,b:1"
    assert hosts.parse_hosts_and_slots("a:2,b:1") == (["a", "b"], {"a": 2, "b": 1})
    assert hosts.HostInfo.from_string("a:2") == hosts.HostInfo("a", 2)


def test_a_function_runs_in_a_thread():
    seen = []
    thread = threads.in_thread(seen.append, (1,), name="mine")
    thread.join()
    assert (seen, thread.name, thread.daemon) == ([1], "mine", True)
    threads.in_thread(lambda: 1 / 0, silent=True).join()
    with pytest.raises(ValueError, match="args must be a tuple, not int"):
        threads.in_thread(seen.append, 1)


def test_a_function_runs_when_its_event_comes_unless_it_is_stopped():
    seen, event, stop = [], threading.Event(), threading.Event()
    waiting = threads.on_event(event, seen.append, (1,))
    stopped = threads.on_event(threading.Event(), seen.append, (2,), stop, 0.01)
    stop.set()
    stopped.join()
    event.set()
    waiting.join()
    assert seen == [1]


def test_functions_run_in_many_threads():
    met = threading.Barrier(3)
    calls = threads.execute_function_multithreaded(lambda x: met.wait() * 0 + x, [[1], [2], [3]])
    assert calls == {0: 1, 1: 2, 2: 3}
    with pytest.raises(ZeroDivisionError):
        threads.execute_function_multithreaded(lambda x: 1 / x, [[1], [0]])


_PLAIN = (
    "shutdown is_initialized stop_timeline size local_size cross_size rank local_rank "
    "cross_rank is_homogeneous mpi_threads_supported mpi_enabled mpi_built gloo_enabled "
    "gloo_built nccl_built ddl_built ccl_built cuda_built rocm_built"
)
_SIGNATURES = {
    **dict.fromkeys(_PLAIN.split(), "()"),
    "init": "(comm=None, process_sets=None)",
    "start_timeline": "(file_path, mark_cycles=False)",
}


@pytest.mark.parametrize(("name", "parameters"), _SIGNATURES.items())
def test_the_object_behind_the_functions_has_all_of_horovods(name, parameters):
    signature = inspect.signature(getattr(HorovodBasics(__file__, "mpi_lib_v2"), name))
    bare = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in signature.parameters.values()
        if parameter.name != "config"  # ours, after Horovod's
    ]
    assert str(inspect.Signature(bare)) == parameters


def test_the_reductions_have_horovods_numbers():
    have = HorovodBasics(__file__)
    assert [have.Average, have.Sum, have.Adasum, have.Min, have.Max, have.Product] == [*range(6)]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("_handle_map", r"has no .*_handle_map: give a handle to synchronize"),
        (
            "HorovodGroupedAllreduce",
            r"has no .*Allreduce: call grouped_allreduce, which has",
        ),
        ("never_there", r"has no attribute 'never_there'"),
    ],
)
def test_what_stands_behind_an_operation_is_an_attribute_error_that_says_what_to_use(name, said):
    with pytest.raises(AttributeError, match=said):
        getattr(mpi_ops, name)


@pytest.mark.parametrize("name", ["_allreduce_async", "_broadcast_function_factory"])
def test_a_function_behind_an_operation_refuses_to_be_called(name):
    with pytest.raises(NotImplementedError, match=r"_.*: call (allreduce|broadcast)_async"):
        getattr(mpi_ops, name)()
