import errno
import os
import socket

import psutil
import pytest

from hvdtune.errors import LaunchError, UsageError
from hvdtune.launcher.hosts import (
    Host,
    address_for,
    address_towards,
    parse_hosts,
    read_hostfile,
    remote_hosts,
    this_host,
)


@pytest.mark.parametrize(
    ("processors", "most"), [(2, 64), (4, 64), (8, 128)], ids=["few", "just-few", "many"]
)
def test_a_host_that_nobody_lists_has_slots_for_what_its_processors_bear(
    monkeypatch, processors, most
):
    monkeypatch.setattr("hvdtune.launcher.hosts.usable_processors", lambda: processors)
    assert this_host(most) == (Host("localhost", most),)
    with pytest.raises(UsageError) as refused:
        this_host(most + 1)
    assert str(refused.value) == (
        f"ranks {most + 1}: this host has {processors} processors, and more than {most} ranks "
        f"would stall it; to start them anyway, list the host with its slots, as in "
        f"localhost:{most + 1}"
    )
    assert parse_hosts(f"localhost:{most + 1}") == (Host("localhost", most + 1),)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a:2", [("a", 2)]),
        ("a:2,b:4", [("a", 2), ("b", 4)]),
        ("a, b:3", [("a", 1), ("b", 3)]),
        ("127.0.0.1:2,127.0.0.2:2", [("127.0.0.1", 2), ("127.0.0.2", 2)]),
        ("gpu-01.site_a:8", [("gpu-01.site_a", 8)]),
        ("[2001:db8::1]:2,[::1]", [("2001:db8::1", 2), ("::1", 1)]),
        ("[fe80::1%eth0]:2", [("fe80::1%eth0", 2)]),
    ],
)
def test_host_lists(text, wanted):
    assert parse_hosts(text) == tuple(Host(*each) for each in wanted)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "'' is not a host"),
        ("a:", "'a:' is not a host"),
        ("a:x", "'a:x' is not a host"),
        ("a:-1", "'a:-1' is not a host"),
        ("a:0", "host a has no slots"),
        ("a:1,,b:1", "'' is not a host"),
        ("a:1,a:2", "host a is listed twice"),
        ("Node1:1,node1:2", "host node1 is listed twice"),
        ("a:1;rm", "'a:1;rm' is not a host"),
        ("::1", "'::1' is not a host"),
        ("[10.0.0.1]:2", r"'\[10.0.0.1\]' is not an IPv6 address"),
    ],
)
def test_faults_in_host_lists_are_named(text, fault):
    with pytest.raises(UsageError, match=f"^hosts: {fault}"):
        parse_hosts(text)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"], ids=["plain", "byte-order-mark"])
def test_a_host_file_has_one_host_per_line(tmp_path, encoding):
    file = tmp_path / "hosts"
    content = "# nodes\na slots=2\n\nb   slots = 4  # big\nc:3\nd\n"
    file.write_text(content, encoding=encoding)
    assert read_hostfile(file) == (Host("a", 2), Host("b", 4), Host("c", 3), Host("d", 1))


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"a slots=2\nb slots=many\n", ":2: 'b slots=many' is not a host"),
        (b"a slots=2\na slots=2\n", "host a is listed twice"),
        (b"# nothing\n", "names no host"),
        (b"\xff\xfe", "is not text"),
    ],
)
def test_faults_in_host_files_are_named(tmp_path, content, fault):
    file = tmp_path / "hosts"
    file.write_bytes(content)
    with pytest.raises(UsageError, match=fault):
        read_hostfile(file)


def test_a_host_file_that_is_not_there_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match="No such file or directory"):
        read_hostfile(tmp_path / "absent")


def own_address():
    return next(
        entry.address
        for entries in psutil.net_if_addrs().values()
        for entry in entries
        if entry.family == socket.AF_INET
    )


@pytest.mark.parametrize(
    "name",
    [
        "localhost", "LocalHost", "127.0.0.1", "127.8.9.10", "::1", own_address(),
        socket.gethostname(), socket.gethostname().swapcase(),
        socket.getfqdn(), socket.getfqdn().swapcase(),
    ],
)  # fmt: skip
def test_this_machine_is_local(name):
    assert remote_hosts([name]) == ()


@pytest.mark.parametrize("name", ["node17", "10.1.2.3", "127.0.0", "128.0.0.1"])
def test_other_machines_are_far(name):
    assert remote_hosts(["localhost", name, name.upper()]) == (name,)


@pytest.mark.parametrize(
    ("host", "own"), [("127.0.0.1", "127.0.0.1"), ("::1", "::1"), ("fe80::7%lo", "fe80::7%lo")]
)
def test_the_way_to_a_host_begins_at_an_address_of_this_one(monkeypatch, host, own):
    # No link-local address is on every machine: this socket is where it would be.
    if "%" in host:
        where = ("fe80::7", 4711, 0, socket.if_nametoindex("lo"))
        monkeypatch.setattr(socket.socket, "connect", lambda _, address: None)
        monkeypatch.setattr(socket.socket, "getsockname", lambda _: where)
    assert address_towards(host) == own


def test_a_name_that_is_unknown_is_a_sentence():
    with pytest.raises(
        LaunchError, match=r"nowhere\.invalid: this host cannot .*check the spelling"
    ):
        address_towards("nowhere.invalid")


def test_no_way_to_a_host_is_a_sentence(monkeypatch):
    def unreachable(_, address):
        raise OSError(errno.ENETUNREACH, os.strerror(errno.ENETUNREACH))

    monkeypatch.setattr(socket.socket, "connect", unreachable)
    with pytest.raises(LaunchError, match=r"no route to host 10\.9\.9\.9: .*; HVDTUNE_INTERFACE"):
        address_towards("10.9.9.9")


def test_loopback_is_no_address_for_other_hosts():
    with pytest.raises(
        UsageError, match=r"127\.0\.0\.1 is this host's loopback, which b cannot reach"
    ):
        address_for(["b"], "127.0.0.1")
    assert address_for(["b"], "10.0.0.1") == "10.0.0.1"
