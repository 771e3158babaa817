import os
import socket
import stat
from types import SimpleNamespace

import pytest

from hvdtune.core.config.environment import (
    Config,
    changed_environ,
    environ_rank_and_size,
    launch_defaults,
    read_setting,
    worker_environ,
)
from hvdtune.core.config.knobs import Knob
from hvdtune.errors import UsageError
from hvdtune.parse import ALL_STEPS, StepWindow
from tests.kit.configs import flat

_KNOBS = (
    Knob("fusion_threshold_bytes", "bytes", "int", 0, 2**29, True, 2**27, "live"),
    Knob("cycle_time_ms", "ms", "float", 0, 50, True, 1.0, "live"),
    Knob("hierarchical_allreduce", "", "bool", 0, 1, False, False, "live", 2),
    Knob("torus_allreduce", "", "bool", 0, 1, False, False, "live", 2),
    Knob("algorithm", "", "category", 0, 1, False, "auto", "live", choices=("auto", "ring")),
)
_RANK_1 = {
    "HVDTUNE_RANK": "1",
    "HVDTUNE_SIZE": "2",
    "HVDTUNE_HOST": "127.0.0.2",
    "HVDTUNE_RENDEZVOUS": "127.0.0.1:4711",
}


@pytest.fixture
def key_fd():
    fd = os.memfd_create("key", 0)
    os.write(fd, bytes(range(32)))
    yield fd
    os.close(fd)


_ASKED = {"HOROVOD_TIMELINE": "t.json", "HOROVOD_TIMELINE_MARK_CYCLES": "1"}


@pytest.mark.parametrize(
    ("environ", "fields"),
    [
        ({}, {"rank": 0, "size": 1, "rendezvous_port": 0, "key": b""}),
        ({}, {"setting": {}, "timeline": "", "transport": "auto"}),
        (_ASKED, {"horovod_timeline": "t.json", "horovod_cycles": True}),
        ({"HVDTUNE_HOST": "Node1"}, {"host": "node1"}),
    ],
    ids=["rank-0-of-1", "defaults", "horovods-timeline-is-its-own", "a-host-in-capitals"],
)
def test_a_process_without_a_launcher(environ, fields):
    config = Config.from_environ(environ, _KNOBS)
    known = flat(config) | {"timeline_path": config.timeline_path}
    assert {name: known[name] for name in fields} == fields


@pytest.mark.parametrize(
    ("environ", "fields"),
    [
        ({"HVDTUNE_LOCAL_RANK": "1"}, {"rank": 1, "size": 2, "local_rank": 1, "host": "127.0.0.2"}),
        ({}, {"rendezvous_address": "127.0.0.1", "rendezvous_port": 4711, "key": bytes(range(32))}),
        (
            {"HVDTUNE_RENDEZVOUS": "[fe80::1]:4711"},
            {"rendezvous_address": "fe80::1", "rendezvous_port": 4711},
        ),
        ({"HVDTUNE_TIMELINE": "/run/rank-%r.hvt"}, {"timeline_path": "/run/rank-1.hvt"}),
        ({"HVDTUNE_TIMELINE": "/run/t.hvt"}, {"timeline_path": "/run/t-rank1.hvt"}),
        ({"HVDTUNE_TIMELINE_MAX_MB": "1.5"}, {"recording_max_bytes": 3 << 19}),
        (_ASKED, {"horovod_timeline": "", "horovod_cycles": False}),
    ],
    ids=[
        "place",
        "rendezvous",
        "rendezvous-by-ipv6",
        "trace",
        "trace-for-all-ranks",
        "size-of-the-trace",
        "horovods-timeline-is-not-its-own",
    ],
)
def test_a_launched_rank_knows(key_fd, environ, fields):
    config = Config.from_environ(_RANK_1 | {"HVDTUNE_KEY_FD": str(key_fd)} | environ, _KNOBS)
    known = flat(config) | {"timeline_path": config.timeline_path}
    assert {name: known[name] for name in fields} == fields
    assert "key" not in repr(config)


@pytest.mark.parametrize(
    ("addresses", "chosen"),
    [
        (["fe80::1%eth9", "2001:db8::1", "10.0.0.1", "10.0.0.2"], "10.0.0.1"),
        (["fe80::1%eth9", "2001:db8::1", "2001:db8::2"], "2001:db8::1"),
        (["fe80::1%eth9", "fe80::2%eth9"], "fe80::1%eth9"),
    ],
    ids=["of-both-kinds", "of-ipv6", "link-local"],
)
def test_the_address_of_an_interface_is_the_one_that_leads_furthest(
    monkeypatch, key_fd, addresses, chosen
):
    entries = [SimpleNamespace(family=socket.AF_PACKET, address="02:00:00:00:00:01")]
    for address in addresses:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        entries.append(SimpleNamespace(family=family, address=address))
    monkeypatch.setattr("psutil.net_if_addrs", lambda: {"eth9": entries})
    environ = {"HVDTUNE_KEY_FD": str(key_fd), "HVDTUNE_INTERFACE": "eth9"}
    assert Config.from_environ(_RANK_1 | environ, ()).rendezvous.own_address == chosen


def test_the_key_is_read_again_after_shutdown_but_not_inherited(key_fd):
    os.set_inheritable(key_fd, True)
    environ = _RANK_1 | {"HVDTUNE_KEY_FD": str(key_fd)}
    assert (
        Config.from_environ(environ, ()).rendezvous.key
        == Config.from_environ(environ, ()).rendezvous.key
    )
    assert not os.get_inheritable(key_fd)


def test_a_key_file_must_be_private(tmp_path):
    file = tmp_path / "key"
    file.write_bytes(bytes(32))
    environ = _RANK_1 | {"HVDTUNE_KEY_FILE": str(file)}
    file.chmod(0o600)
    assert Config.from_environ(environ, ()).rendezvous.key == bytes(32)
    file.chmod(0o644)
    with pytest.raises(UsageError, match="is readable by other users"):
        Config.from_environ(environ, ())


def test_a_key_file_of_another_user_is_refused(tmp_path, monkeypatch):
    file = tmp_path / "key"
    file.write_bytes(bytes(32))
    file.chmod(0o600)
    owner = os.fstat

    def of_another(fd):
        fields = list(owner(fd))
        fields[stat.ST_UID] = os.geteuid() + 1
        return os.stat_result(fields)

    monkeypatch.setattr(os, "fstat", of_another)
    with pytest.raises(UsageError, match=r"to another user\. Make a key of your own: `\(umask"):
        Config.from_environ(_RANK_1 | {"HVDTUNE_KEY_FILE": str(file)}, ())


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"HVDTUNE_RANK": "two"}, "HVDTUNE_RANK=two is not a whole number"),
        ({"HVDTUNE_RANK": "2"}, "HVDTUNE_RANK=2 is out of range: HVDTUNE_SIZE is 2, "),
        ({"HVDTUNE_RENDEZVOUS": ""}, "HVDTUNE_SIZE=2 is set, but HVDTUNE_RENDEZVOUS is not"),
        ({"HVDTUNE_RENDEZVOUS": "nowhere"}, "is not ADDRESS:PORT"),
        ({"HVDTUNE_RENDEZVOUS": "a:99999"}, "is not ADDRESS:PORT"),
        ({"HVDTUNE_KEY_FD": ""}, "HVDTUNE_KEY_FD is not"),
        ({"HVDTUNE_KEY_FD": "987"}, "closed inherited file descriptors"),
        (
            {"HVDTUNE_KEY_FILE": "/proc/absent", "HVDTUNE_KEY_FD": ""},
            "HVDTUNE_KEY_FILE=/proc/absent does not exist",
        ),
        ({"HVDTUNE_START_TIMEOUT_S": "-1"}, "HVDTUNE_START_TIMEOUT_S=-1 is negative"),
        ({"HVDTUNE_HEARTBEAT_TIMEOUT_S": "nan"}, "is not a number"),
        ({"HVDTUNE_TRANSPORT": "rdma"}, "HVDTUNE_TRANSPORT=rdma is not one of auto, tcp"),
        ({"HVDTUNE_ADDRESS": "node1"}, "HVDTUNE_ADDRESS=node1 is not a numeric IP address"),
        ({"HVDTUNE_ADDRESS": "0.0.0.0"}, "HVDTUNE_ADDRESS=0.0.0.0 means every interface"),
        ({"HVDTUNE_ADDRESS": "::"}, "HVDTUNE_ADDRESS=:: means every interface"),
        ({"HVDTUNE_ADDRESS": "::ffff:0.0.0.0"}, "means every interface"),
        ({"HVDTUNE_INTERFACE": "nosuch0"}, "is not one of this host's interfaces: .*lo"),
        ({"HVDTUNE_INTERFACE": "lo", "HVDTUNE_ADDRESS": "127.0.0.9"}, "not both"),
        ({"HVDTUNE_CYCLE_TIME_MS": "fast"}, "HVDTUNE_CYCLE_TIME_MS: "),
        ({"HOROVOD_FUSION_THRESHOLD": "9999999999"}, "HOROVOD_FUSION_THRESHOLD: .*out of range"),
    ],
)
def test_values_that_cannot_be_are_named(key_fd, changes, fault):
    environ = _RANK_1 | {"HVDTUNE_KEY_FD": str(key_fd)} | changes
    with pytest.raises(UsageError, match=fault):
        Config.from_environ(environ, _KNOBS)


def test_a_key_of_the_wrong_length_is_refused(tmp_path):
    fd = os.memfd_create("short", 0)
    os.write(fd, b"short")
    with pytest.raises(
        UsageError, match=r"contains 5 bytes, but a key has .*start the ranks with `hvdtune run`"
    ):
        Config.from_environ(_RANK_1 | {"HVDTUNE_KEY_FD": str(fd)}, ())
    os.close(fd)


@pytest.mark.parametrize(
    ("environ", "address"),
    [
        ({}, ""),
        ({"HVDTUNE_ADDRESS": "10.1.2.3"}, "10.1.2.3"),
        ({"HVDTUNE_ADDRESS": "fd00::1"}, "fd00::1"),
        ({"HVDTUNE_INTERFACE": "lo"}, "127.0.0.1"),
        ({"HOROVOD_GLOO_IFACE": "lo"}, "127.0.0.1"),
    ],
)
def test_a_rank_listens_on_the_chosen_interface_else_on_loopback(key_fd, environ, address):
    environ = _RANK_1 | {"HVDTUNE_KEY_FD": str(key_fd)} | environ
    assert Config.from_environ(environ, ()).rendezvous.own_address == address
    assert launch_defaults(environ=environ).rendezvous.own_address == address


@pytest.mark.parametrize(
    ("environ", "setting"),
    [
        ({"HVDTUNE_CYCLE_TIME_MS": "2.5"}, {"cycle_time_ms": 2.5}),
        ({"HOROVOD_CYCLE_TIME": "3"}, {"cycle_time_ms": 3.0}),
        ({"HOROVOD_CYCLE_TIME": "3", "HVDTUNE_CYCLE_TIME_MS": "4"}, {"cycle_time_ms": 4.0}),
        ({"HOROVOD_FUSION_THRESHOLD": "0"}, {"fusion_threshold_bytes": 0}),
        ({"HOROVOD_HIERARCHICAL_ALLREDUCE": "1"}, {"hierarchical_allreduce": True}),
        ({"HOROVOD_TORUS_ALLREDUCE": "1"}, {"torus_allreduce": True}),
        ({"HVDTUNE_ALGORITHM": "ring"}, {"algorithm": "ring"}),
        ({"HVDTUNE_HIERARCHICAL_ALLREDUCE": "false"}, {"hierarchical_allreduce": False}),
        ({"HVDTUNE_CYCLE_TIME_MS": ""}, {}),
    ],
)
def test_knobs_come_from_our_variable_or_horovods(environ, setting):
    assert read_setting(environ, _KNOBS) == setting


@pytest.mark.parametrize(
    ("text", "window"),
    [
        ("100:120", StepWindow(100, 120)),
        (":20", StepWindow(0, 20)),
        ("7:", StepWindow(first=7)),
        ("::50", StepWindow(every=50)),
        ("10:40:5", StepWindow(10, 40, 5)),
        ("", ALL_STEPS),
    ],
)
def test_steps_to_record_are_read_as_python_slices(text, window):
    assert Config.from_environ({"HVDTUNE_TIMELINE_STEPS": text}, ()).recording.steps == window


@pytest.mark.parametrize(
    "text", ["5", "9:9", "9:2", "-1:4", "a:b", "1:2:0", "1:2:3:4", f"0:{2**65}"]
)
def test_steps_that_cannot_be_are_refused(text):
    with pytest.raises(UsageError, match=f"HVDTUNE_TIMELINE_STEPS={text} "):
        Config.from_environ({"HVDTUNE_TIMELINE_STEPS": text}, ())


def test_a_new_ranks_environment_has_no_key_of_an_outer_job_and_no_password():
    outer = {"HVDTUNE_KEY_FD": "7", "HVDTUNE_KEY_FILE": "/k", "PATH": "/bin", "A": "1"}
    outer["HVDTUNE_STORAGE"] = "postgresql://tuner:password@database/studies"
    new = worker_environ({"A": "2"}, outer)
    del new["PYTHONPATH"], new["HVDTUNE_LAUNCHED"]
    assert new == {"PATH": "/bin", "A": "2"}


@pytest.mark.parametrize("before", ["", "/lib/a", "/lib/a:/lib/b", ":/lib/a"])
def test_the_folder_of_horovods_names_comes_last_on_a_ranks_path_and_once(before):
    path = worker_environ({}, {"PYTHONPATH": before})["PYTHONPATH"]
    kept, _, last = path.rpartition(os.pathsep)
    assert kept == before
    assert os.path.isfile(os.path.join(last, "horovod", "__init__.py"))
    assert worker_environ({}, {"PYTHONPATH": path})["PYTHONPATH"] == path


@pytest.mark.parametrize(
    ("environ", "wanted"),
    [
        ({}, (0, 1)),
        ({"HOROVOD_RANK": "1", "HOROVOD_SIZE": "4"}, (1, 4)),
        ({"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "3"}, (2, 3)),
        ({"PMI_RANK": "0", "PMI_SIZE": "2"}, (0, 2)),
    ],
)
def test_rank_and_size_are_those_of_the_launcher(environ, wanted):
    assert environ_rank_and_size(environ) == wanted


def test_a_rank_without_a_size_is_refused():
    with pytest.raises(UsageError, match=r"^PMI_RANK is set, but PMI_SIZE is not"):
        environ_rank_and_size({"PMI_RANK": "1"})
    with pytest.raises(UsageError, match=r"^PMIX_RANK is set, but the number of ranks is not"):
        environ_rank_and_size({"PMIX_RANK": "1"})


def test_a_changed_environment_is_put_back(monkeypatch):
    monkeypatch.setenv("HVDTUNE_TEST_A", "before")
    monkeypatch.delenv("HVDTUNE_TEST_B", raising=False)
    with (
        pytest.raises(KeyError),
        changed_environ({"HVDTUNE_TEST_A": None, "HVDTUNE_TEST_B": "inside"}),
    ):
        assert os.environ["HVDTUNE_TEST_B"] == "inside"
        assert os.environ["HVDTUNE_TEST_A"]
    assert os.environ["HVDTUNE_TEST_A"] == "before"
    assert "HVDTUNE_TEST_B" not in os.environ


def test_a_launcher_inside_a_rank_takes_its_timeouts_but_not_its_place():
    defaults = launch_defaults(environ=_RANK_1 | {"HVDTUNE_START_TIMEOUT_S": "77"})
    assert (defaults.timeouts.start_s, defaults.place.size) == (77.0, 1)
