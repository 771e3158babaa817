"""The variables that a rank was started with, told from those that its script has set since."""

import os
from unittest import mock

import pytest

from hvdtune.core.config.environment import (
    Config,
    launch_defaults,
    launcher_values,
    own_environ,
    read_setting,
    worker_environ,
)
from hvdtune.core.config.groups import RecordingConfig
from hvdtune.core.config.knobs import Knob
from hvdtune.core.config.launched import NOTE, TORCH_PLACE, give
from hvdtune.errors import UsageError
from hvdtune.horovod.vocabulary import VARIABLES
from hvdtune.launcher.plan import Slot, slot_environ
from tests.kit.configs import flat

_KNOBS = (
    Knob("fusion_threshold_bytes", "bytes", "int", 0, 2**29, True, 2**27, "live"),
    Knob("cycle_time_ms", "ms", "float", 0, 50, True, 1.0, "live"),
)
_USERS = {"PATH": "/bin", "HOROVOD_LOG_LEVEL": "error", "HVDTUNE_HEARTBEAT_TIMEOUT_S": "9"}
_SHARED = {
    "HVDTUNE_RENDEZVOUS": "127.0.0.1:4711",
    "HVDTUNE_START_TIMEOUT_S": "30",
    "HVDTUNE_HEARTBEAT_TIMEOUT_S": "4",
    "HVDTUNE_TRANSPORT": "tcp",
}


@pytest.fixture
def rank():
    """Makes this process's environment that of a rank, and returns what the script then sees."""
    fd = os.memfd_create("key", 0)
    os.write(fd, bytes(32))

    def make(given=None, users=None):
        slot = Slot(1, "a", 1, 2, 0, 1)
        told = _SHARED | {"HVDTUNE_KEY_FD": str(fd)} | slot_environ(slot, 2) | (given or {})
        environ = worker_environ(told, _USERS | (users or {}))
        for name in ours(os.environ):
            del os.environ[name]
        os.environ.update(environ)
        return os.environ

    with mock.patch.dict(os.environ):  # scripts set more
        yield make
    os.close(fd)


def ours(environ):
    known = {name for name in environ if name.startswith(("HVDTUNE_", "HOROVOD_"))}
    return {name: environ[name] for name in {*known, *TORCH_PLACE}.intersection(environ)}


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"HVDTUNE_CYCLE_TIME_MS": "3", "HVDTUNE_TIMELINE": "/run/rank-%r.hvt"},
        {"HVDTUNE_CONTROLLER": "mpi", "HOROVOD_STALL_CHECK_DISABLE": "1"},
        {term.variable: "1" for term in VARIABLES if term.launcher},
    ],
    ids=["place", "knob-and-trace", "mpi", "all-that-ask-a-launcher"],
)
def test_what_a_launcher_sets_for_its_rank_is_nothing_to_a_launcher_inside_it(rank, given):
    rank(given)
    assert ours(own_environ()) == ours(_USERS)
    assert launcher_values() == {} and read_setting(knobs=_KNOBS) == {}
    inside = launch_defaults()
    assert (inside.data_path.transport, inside.mpi.controller) == ("auto", "auto")
    assert inside.timeouts.heartbeat_s == 9.0
    again = worker_environ({})
    assert ours(again).keys() == ours(_USERS).keys() | {NOTE}


def test_what_the_script_has_set_for_a_launcher_inside_it_reaches_that(rank):
    environ = rank({"HVDTUNE_CYCLE_TIME_MS": "3"})
    environ["HVDTUNE_CYCLE_TIME_MS"] = "5"
    environ["HOROVOD_TIMELINE"] = "inner.json"
    assert read_setting(knobs=_KNOBS) == {"cycle_time_ms": 5.0}
    assert launcher_values() == {"HOROVOD_TIMELINE": "inner.json"}


def test_what_is_given_after_the_launch_is_noted_belongs_to_the_launch(rank):
    environ = rank(users={"HVDTUNE_ADDRESS": "10.0.0.1"})
    give(environ, "HVDTUNE_ADDRESS", "10.0.0.2")
    assert own_environ()["HVDTUNE_ADDRESS"] == "10.0.0.1"


@pytest.mark.parametrize("name", ["HOROVOD_ELASTIC", "HOROVOD_GLOO_IFACE"])
def test_what_horovodrun_sets_for_its_rank_is_nothing_to_a_launcher_inside_it(name):
    outer = {"HOROVOD_GLOO_RENDEZVOUS_ADDR": "10.0.0.1", "HOROVOD_HOSTNAME": "a", name: "1"}
    assert own_environ(outer) == {}
    assert own_environ({name: "1"}) == {name: "1"}  # a user's


@pytest.mark.parametrize(
    ("variable", "text", "field", "value"),
    [
        ("HOROVOD_FUSION_THRESHOLD", "1024", "fusion_threshold_bytes", 1024),
        ("HOROVOD_CYCLE_TIME", "2.5", "cycle_time_ms", 2.5),
        ("HOROVOD_STALL_CHECK_TIME_SECONDS", "60", "hang_warning_s", 60.0),
        ("HOROVOD_STALL_CHECK_DISABLE", "1", "hang_warning_s", 0.0),
        ("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "70", "hang_abort_s", 70.0),
        ("HOROVOD_LOG_LEVEL", "debug", "log_level", "debug"),
        ("HOROVOD_THREAD_AFFINITY", "3,4", "thread_core", 4),
        ("HOROVOD_GLOO_IFACE", "lo", "own_address", "127.0.0.1"),
        ("HOROVOD_TIMELINE", "t.json", "horovod_timeline", "t.json"),
        ("HOROVOD_TIMELINE", "DYNAMIC", "horovod_timeline", ""),
    ],
)
def test_a_variable_of_horovods_that_the_script_sets_before_init_counts(
    rank, variable, text, field, value
):
    users = {
        "HVDTUNE_CYCLE_TIME_MS": "7",
        "HVDTUNE_HANG_WARNING_S": "8",
        "HVDTUNE_LOG_LEVEL": "info",
    }
    environ = rank({"HVDTUNE_ADDRESS": "127.0.0.9"} if field == "own_address" else None, users)
    environ[variable] = text
    config = Config.from_environ(knobs=_KNOBS)
    assert (flat(config) | dict(config.setting))[field] == value
    assert config.ignored == ()


@pytest.mark.parametrize(
    ("given", "variable", "text", "sentence"),
    [
        (
            {"HVDTUNE_CYCLE_TIME_MS": "3"},
            "HOROVOD_CYCLE_TIME",
            "2",
            "The script set HOROVOD_CYCLE_TIME=2 too late to take effect: this job was started "
            "with HVDTUNE_CYCLE_TIME_MS=3",
        ),
        (
            {"HVDTUNE_CYCLE_TIME_MS": "3"},
            "HVDTUNE_CYCLE_TIME_MS",
            "2",
            "this job was started with HVDTUNE_CYCLE_TIME_MS=3",
        ),
        ({}, "HOROVOD_GLOO_TIMEOUT_SECONDS", "80", "started with HVDTUNE_START_TIMEOUT_S=30"),
        ({}, "HOROVOD_AUTOTUNE", "1", "tuning needs the launcher: use `hvdtune run --autotune`"),
        (
            {"HVDTUNE_TIMELINE": "/run/rank-%r.hvt"},
            "HOROVOD_TIMELINE",
            "t.json",
            "The script set HOROVOD_TIMELINE=t.json too late to take effect: `hvdtune run` "
            "records this job's timeline already",
        ),
    ],
)
def test_what_the_launcher_was_told_stands_and_the_script_hears_of_it(
    rank, given, variable, text, sentence
):
    rank(given)
    before = Config.from_environ(knobs=_KNOBS)
    os.environ[variable] = text
    after = Config.from_environ(knobs=_KNOBS)
    (said,) = after.ignored
    assert said.endswith(sentence) and before.ignored == ()
    assert vars(after) | {"ignored": ()} == vars(before)


def test_a_timeline_that_the_launcher_has_been_asked_for_is_not_the_ranks_own(rank):
    rank(users={"HOROVOD_TIMELINE": "t.json", "HOROVOD_TIMELINE_MARK_CYCLES": "1"})
    config = Config.from_environ(knobs=_KNOBS)
    assert (config.recording, config.ignored) == (RecordingConfig(), ())
    os.environ["HOROVOD_TIMELINE"] = "other.json"
    config = Config.from_environ(knobs=_KNOBS)
    assert config.recording == RecordingConfig(horovod_timeline="other.json", horovod_cycles=True)


@pytest.mark.parametrize("text", ["1", "[]", '{"values": {}}'])
def test_a_note_that_no_launcher_has_made_is_refused(text):
    with pytest.raises(UsageError, match="HVDTUNE_LAUNCHED is invalid"):
        own_environ({NOTE: text})
