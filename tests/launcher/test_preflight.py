"""The check of hosts: its decisions, and its two ends of a way, without other hosts."""

import itertools
import socket
import threading
import time
from dataclasses import replace

import msgspec
import pytest

from hvdtune import __version__
from hvdtune.launcher.preflight import way
from hvdtune.launcher.preflight.advice import Expected, find_problems
from hvdtune.launcher.preflight.facts import HostFacts, HostFailure, HostReport, PairReport
from hvdtune.launcher.preflight.probe_link import ProbeError, ProbeLink, probe_command, why_no_probe
from hvdtune.launcher.preflight.rounds import rounds
from hvdtune.workflows.preflight import HostCheck, with_answer

KEY = bytes(range(32))
GIB = 1 << 30
FACTS = HostFacts(
    python="3.11.2", hostname="b", container="", shm_total_bytes=8 * GIB, shm_free_bytes=8 * GIB,
    memory_file_fault="", open_files=1024, open_files_limit=4096, locked_bytes=None, processors=8,
    usable=8, affinity=tuple(range(8)), native_fault="",
)  # fmt: skip
HOST = HostReport(
    "b", 4, is_local=False, facts=FACTS, version=__version__, address="10.0.0.2",
    clock_offset_ms=0.2, clock_round_trip_ms=1.0, clock_round_trips=16,
)  # fmt: skip
PAIR = PairReport(
    "a", "b", "ok", "10.0.0.2", 4711, round_trip_us=20.0, round_trips=200, mib_per_s=1000.0,
    blocks=9,
)  # fmt: skip
EXPECTED = Expected(__version__, "3.11.2", ranks=8)


def problems(hosts=(HOST,), pairs=(PAIR,)):
    return find_problems(hosts, pairs, EXPECTED)


def test_nothing_is_to_do_where_all_is_well():
    assert problems() == ()


@pytest.mark.parametrize(
    ("change", "severity", "sentence"),
    [
        (
            {"native_fault": "no _native"},
            "fail",
            "b: hvdtune's native core cannot be loaded (no _native): install hvdtune",
        ),
        ({"python": "3.12.1"}, "warn", "b: it has Python 3.12.1, this host 3.11.2: install"),
        (
            {"memory_file_fault": "Operation not permitted"},
            "fail",
            "b: cannot create memory files (Operation not permitted): run with --transport tcp",
        ),
        (
            {"shm_total_bytes": 64 << 20, "shm_free_bytes": 60 << 20, "container": "Docker"},
            "warn",
            "b: /dev/shm has 60 MiB free of 64 MiB: start the container with --shm-size=8g",
        ),
        (
            {"shm_total_bytes": 64 << 20, "shm_free_bytes": 0, "container": "Kubernetes"},
            "warn",
            "b: /dev/shm has 0 bytes free of 64 MiB: mount an emptyDir with `medium: Memory`",
        ),
        (
            {"shm_total_bytes": -1, "shm_free_bytes": -1},
            "warn",
            "b: it has no /dev/shm: mount a larger one",
        ),
        (
            {"open_files": 256},
            "warn",
            "b: a process may open 256 files (ulimit -n): a rank in a job of 8 may need 320: run "
            "`ulimit -n 320` first",
        ),
        (
            {"open_files": 64, "open_files_limit": 64},
            "warn",
            "b: a process may open 64 files (ulimit -n): a rank in a job of 8 may need 320: run "
            "`ulimit -n 320` first, for which root has to raise the hard limit",
        ),
        ({"usable": 2}, "warn", "b: 4 ranks for 2 processors: give it fewer slots"),
    ],
)
def test_a_host_that_lacks_something_is_told(change, severity, sentence):
    (problem,) = problems([replace(HOST, facts=replace(FACTS, **change))])
    assert problem.severity == severity
    assert problem.sentence().startswith(sentence)


@pytest.mark.parametrize(
    ("offset_ms", "round_trip_ms", "said"),
    [
        (3200.0, 1.0, "b: its clock is 3.2 s ahead of this host's: run chrony"),
        (-90_000.0, 1.0, "b: its clock is 90.0 s behind this host's: run chrony"),
        (1500.0, 1200.0, None),  # it may be no more than the way
        (900.0, 1.0, None),
    ],
)
def test_a_clock_is_wrong_where_the_way_does_not_explain_it(offset_ms, round_trip_ms, said):
    host = replace(HOST, clock_offset_ms=offset_ms, clock_round_trip_ms=round_trip_ms)
    sentences = [problem.sentence() for problem in problems([host])]
    assert len(sentences) == (said is not None)
    assert not said or sentences[0].startswith(said)


def test_a_port_that_is_taken_is_told():
    host = replace(HOST, meeting_port=23456, meeting_fault="Address already in use")
    (problem,) = problems([host])
    assert problem.severity == "fail"
    assert problem.sentence() == (
        "b: cannot listen on port 23456 (HVDTUNE_RENDEZVOUS_PORT) (Address "
        "already in use): set another port, or find the process that uses it (`ss -ltnp`)"
    )


def test_of_a_host_without_ranks_no_limits_are_asked():
    host = replace(HOST, slots=0, facts=replace(FACTS, open_files=16, usable=0))
    assert problems([host]) == ()


def test_a_host_that_fails_is_told_first():
    failure = HostFailure("ssh", "ssh: Permission denied", "let ssh log in")
    slow = replace(HOST, name="a", facts=replace(FACTS, usable=1))
    first, second = problems([slow, replace(HOST, failure=failure, facts=None)], [])
    assert first.sentence() == "b: ssh: Permission denied: let ssh log in"
    assert (first.severity, second.severity) == ("fail", "warn")


@pytest.mark.parametrize(
    ("change", "severity", "sentence"),
    [
        (
            {"state": "unreachable", "seen": "No answer within 5 s"},
            "fail",
            "a -> b: port 4711 of 10.0.0.2: no answer within 5 s: allow connections between",
        ),
        (
            {"state": "unreachable", "seen": "refused", "others": ("10.1.0.2 (ib0)",)},
            "fail",
            "a -> b: port 4711 of 10.0.0.2: refused: b is reachable from there at 10.1.0.2 (ib0)",
        ),
        (
            {"state": "unauthenticated", "seen": "the process there has a different key"},
            "fail",
            "a -> b: port 4711 of 10.0.0.2: the process there has a different key: check who",
        ),
        (
            {"meeting_port": 23456, "meeting_fault": "No answer within 5 s"},
            "fail",
            "a -> b: port 23456 (HVDTUNE_RENDEZVOUS_PORT) at 10.0.0.2: no answer",
        ),
        (
            {"name_fault": "Name or service not known"},
            "warn",
            "a -> b: the name b cannot be resolved there (Name or service not known): add it",
        ),
        (
            {"measure_fault": "timed out"},
            "fail",
            "a -> b: the connection broke during the measurement (timed out): look for",
        ),
    ],
)
def test_a_way_that_does_not_lead_there_is_told(change, severity, sentence):
    (problem,) = problems(pairs=[replace(PAIR, **change)])
    assert problem.severity == severity
    assert problem.sentence().startswith(sentence)


def test_of_a_way_that_nobody_could_try_nothing_is_told():
    assert problems(pairs=[PairReport("a", "b")]) == ()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"mib_per_s": 110.0}, "a -> b: 110 MiB/s; the median of all pairs is 1,000: the slowest"),
        ({"round_trip_us": 900.0}, "a -> b: 900 us per round trip; the median of all pairs is 20:"),
        ({"mib_per_s": 600.0, "round_trip_us": 200.0}, None),
    ],
)
@pytest.mark.parametrize("pairs", [2, 6])
def test_a_way_is_slow_beside_enough_others(change, said, pairs):
    found = problems(pairs=[replace(PAIR, **change), *[PAIR] * (pairs - 1)])
    assert [problem.severity for problem in found] == ["warn"] * (said is not None and pairs == 6)
    assert not found or found[0].sentence().startswith(said)


@pytest.mark.parametrize("size", [0, 1, 2, 3, 4, 5, 8, 13])
def test_every_ordered_pair_has_its_turn_and_nobody_two_at_a_time(size):
    found = rounds(size)
    assert sorted(pair for turn in found for pair in turn) == [
        *itertools.permutations(range(size), 2)
    ]
    for turn in found:
        taking_part = [number for pair in turn for number in pair]
        assert len(taking_part) == len(set(taking_part))


DOORS = [
    {"address": "10.0.0.2", "port": 1, "interface": "eth0"},
    {"address": "10.1.0.2", "port": 2, "interface": "ib0"},
]
MEETING = {"address": "10.0.0.2", "port": 23456, "interface": ""}


def answered(report, doors, *states):
    found = [
        {"state": state, "seen": "" if state == "ok" else f"it is {state}"} for state in states
    ]
    answer = {"name_fault": "", "doors": found}
    target = HostCheck(1, report)
    target.doors = doors
    return with_answer(PairReport("a", "b"), target, answer)


@pytest.mark.parametrize(
    ("states", "others"),
    [
        (("ok", "ok"), ()),
        (("ok", "unreachable"), ()),
        (("unreachable", "ok"), ("10.1.0.2 (ib0)",)),
        (("unauthenticated", "unreachable"), ()),
    ],
)
def test_the_address_that_ranks_have_decides(states, others):
    pair = answered(HOST, DOORS, *states)
    seen = "" if states[0] == "ok" else f"it is {states[0]}"
    assert (pair.state, pair.others, pair.port, pair.seen) == (states[0], others, 1, seen)


@pytest.mark.parametrize(
    ("states", "port", "fault"),
    [
        (("ok", "ok", "ok"), 23456, ""),
        (("ok", "ok", "unreachable"), 23456, "it is unreachable"),
        (("unreachable", "ok", "unreachable"), 0, ""),
    ],
)
def test_the_port_of_the_meeting_counts_where_ranks_reach_each_other(states, port, fault):
    pair = answered(replace(HOST, meeting_port=23456), [*DOORS, MEETING], *states)
    assert (pair.state, pair.port) == (states[0], 1)
    assert (pair.meeting_port, pair.meeting_fault) == (port, fault)


def test_a_port_where_the_host_cannot_listen_is_not_tried():
    host = replace(HOST, meeting_port=23456, meeting_fault="Address already in use")
    assert answered(host, DOORS, "ok", "ok").meeting_port == 0


@pytest.mark.parametrize(
    ("code", "line", "check", "said"),
    [
        (255, "b: Permission denied (publickey).", "ssh", "ssh-copy-id b"),
        (255, "Host key verification failed.", "ssh", "run `ssh b` once"),
        (255, "ssh: connect to host b port 22: Connection refused", "ssh", "--ssh-port"),
        (255, "ssh: connect to host b port 22: Connection timed out", "ssh", "no firewall"),
        (255, "ssh: Could not resolve hostname b: Name unknown", "ssh", "/etc/hosts"),
        (255, "", "ssh", "run `ssh b` by hand"),
        (127, "sh: 1: exec: /opt/python: not found", "python", "the same Python at the same path"),
        (1, "ModuleNotFoundError: No module named 'hvdtune'", "hvdtune", f"hvdtune {__version__}"),
        (3, "killed", "answer", "hvdtune doctor"),
    ],
)
def test_why_a_host_cannot_be_asked(code, line, check, said):
    failure = why_no_probe("b", code, line)
    assert failure.check == check
    assert said in failure.advice
    assert line.rstrip(".") in failure.seen or check == "python"


@pytest.mark.parametrize(
    ("command", "check"),
    [
        (["sh", "-c", "echo 'Permission denied (publickey).' >&2; exit 255"], "ssh"),
        (["sh", "-c", "exit 127"], "python"),
        (["sh", "-c", "echo \"No module named 'hvdtune'\" >&2; exit 1"], "hvdtune"),
        (["sh", "-c", "printf '\\0hvdtune-agent\\nX\\0\\0\\0\\0'; read x"], "answer"),
        (["/proc/absent"], "ssh"),
        (["sleep", "100"], "answer"),
    ],
    ids=["login", "python", "hvdtune", "stranger", "no-ssh", "silent"],
)
def test_a_host_that_does_not_answer_is_a_failure_of_it(command, check):
    with pytest.raises(ProbeError) as failed:
        link = ProbeLink("b", command)
        try:
            link.greet(time.monotonic() + (0.1 if command[0] == "sleep" else 60))
        finally:
            if command[0] == "sleep":
                link._process.kill()
            link.close()
    assert failed.value.failure.check == check


def test_a_probe_answers_and_ends_with_its_launcher(gone):
    link = ProbeLink("b", probe_command("b", is_local=True, ssh=()))
    pid = link._process.pid
    try:
        # What a login shell prints comes before.
        assert link.greet(time.monotonic() + 60) == __version__
        link.send({"ask": "facts"})
        facts = msgspec.convert(link.answer(60), HostFacts)
        assert facts.affinity and facts.usable >= 1 and facts.native_fault == ""
        link.send({
            "ask": "listen", "number": 1, "key": KEY.hex(), "address": "",
            "launcher": "127.0.0.1", "interface": "nope0", "meeting_port": 0,
        })  # fmt: skip
        assert "nope0" in link.answer(60)["fault"]
    finally:
        link.close()
    assert gone(pid)


def door(address="127.0.0.1"):
    return way.open_doors([address], KEY, 1)[address]


def has_ipv6():
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "127.0.0.3",
        pytest.param("::1", marks=pytest.mark.skipif(not has_ipv6(), reason="no IPv6 here")),
    ],
)
def test_a_way_is_measured(address):
    with way.dial(address, door(address), KEY, 1, 60) as connection:
        speed = way.measure(connection, 0.02)
    assert speed.round_trip_us > 0 and speed.mib_per_s > 0
    assert speed.round_trips >= 1 and speed.blocks >= 1


@pytest.mark.parametrize(
    ("number", "key"), [(1, bytes(32)), (2, KEY)], ids=["another-key", "another-host"]
)
def test_who_knows_not_the_key_or_means_another_host_is_hung_up_on(number, key):
    with pytest.raises(way.WayError) as refused:
        way.dial("127.0.0.1", door(), key, number, 60)
    assert refused.value.state == "unauthenticated"


@pytest.mark.parametrize("stranger", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n" + bytes(100)])
def test_what_is_no_check_of_ours_does_not_pass_for_one(stranger):
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            connection, _ = server.accept()
            with connection:
                connection.recv(1 << 12)
                connection.sendall(stranger)

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(way.WayError) as refused:
            way.dial("127.0.0.1", server.getsockname()[1], KEY, 1, 60)
        thread.join()
    assert refused.value.state == "unauthenticated"


def test_nobody_at_a_port_is_told_as_the_system_says_it():
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        with pytest.raises(way.WayError, match="Connection refused") as refused:
            way.dial("127.0.0.1", closed.getsockname()[1], KEY, 1, 60)
    assert refused.value.state == "unreachable"
