"""`hvdtune preflight` on this machine, whose loopback addresses count as hosts."""

import json
import os
import socket

import pytest

from hvdtune.cli.cluster.preflight import render
from hvdtune.core.rank.affinity import ranges
from hvdtune.launcher.preflight.facts import HostFailure, HostReport, PairReport, Problem
from hvdtune.workflows import preflight as workflow
from hvdtune.workflows.preflight import PreflightReport


def has_ipv6():
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize(
    "other",
    [
        "127.0.0.2",
        pytest.param("[::1]", marks=pytest.mark.skipif(not has_ipv6(), reason="no IPv6 here")),
    ],
)
def test_every_pair_of_hosts_is_measured_both_ways(call, other):
    code, out, err = call("preflight", "-H", f"127.0.0.1:1,{other}:1", "--json")
    document = json.loads(out)
    assert (code, err) == (0, "")
    assert document["ready"] is True
    names = ["127.0.0.1", other.strip("[]")]
    assert [(host["name"], host["address"]) for host in document["hosts"]] == [
        (name, name) for name in names
    ]
    for host in document["hosts"]:
        assert host["facts"]["processors"] == os.cpu_count()
        assert host["clock_round_trip_ms"] > 0
    ways = {(pair["source"], pair["target"]): pair for pair in document["pairs"]}
    assert set(ways) == {tuple(names), tuple(reversed(names))}
    for way in ways.values():
        assert way["state"] == "ok" and way["port"] > 0
        assert way["mib_per_s"] > 0 and way["blocks"] >= 1
        assert way["round_trip_us"] > 0 and way["round_trips"] >= 1


def test_the_allocation_has_the_hosts_where_none_are_given(call, tmp_path, monkeypatch):
    (tmp_path / "nodes").write_text("127.0.0.4\n127.0.0.4\n")
    monkeypatch.setenv("PBS_NODEFILE", str(tmp_path / "nodes"))
    code, out, _ = call("preflight")
    assert code == 0
    assert out.splitlines()[1].split()[:2] == ["127.0.0.4", "127.0.0.4"]
    assert out.splitlines()[-1].startswith("Ready for 2 ranks on 1 host")


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("PBS_NODEFILE", "/proc/absent", "PBS_NODEFILE=/proc/absent: No such file or directory"),
        ("LSB_DJOB_HOSTFILE", "/proc/absent", "LSB_DJOB_HOSTFILE=/proc/absent: No such file"),
        ("SLURM_JOB_NODELIST", "n[1-2", "SLURM_JOB_NODELIST=n[1-2 is not a list of hosts"),
    ],
)
def test_hosts_of_an_allocation_that_cannot_be_read_are_not_this_one(
    call, monkeypatch, variable, value, said
):
    monkeypatch.setenv(variable, value)
    code, out, err = call("preflight")
    assert (code, out) == (2, "")
    assert said in err and err.endswith(
        "; to list the hosts yourself, use -H HOST:SLOTS, as in -H localhost:2\n"
    )


def test_an_interface_that_is_not_there_is_named_by_its_option(call):
    code, out, err = call("preflight", "-H", "127.0.0.2", "--network-interface", "absent0")
    assert (code, out) == (2, "")
    assert "--network-interface absent0 is not one of this host's interfaces: " in err


@pytest.fixture
def port():
    """One that is free, or was a moment ago, with a socket that can take it."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound


@pytest.mark.parametrize(("listens", "code"), [(False, 0), (True, 1)], ids=["free", "taken"])
def test_the_port_where_ranks_shall_meet_is_tried(call, monkeypatch, port, listens, code):
    number = str(port.getsockname()[1])
    if listens:
        port.listen()
    else:
        port.close()
    monkeypatch.setenv("HVDTUNE_RENDEZVOUS_PORT", number)
    got, out, _ = call("preflight", "-H", "127.0.0.1:1,127.0.0.2:1", "--json")
    document = json.loads(out)
    first, second = document["hosts"]
    assert (got, first["meeting_port"], second["meeting_port"]) == (code, int(number), 0)
    assert bool(first["meeting_fault"]) is listens
    tried = {pair["source"]: pair["meeting_port"] for pair in document["pairs"]}
    assert tried == {"127.0.0.1": 0, "127.0.0.2": 0 if listens else int(number)}
    said = [problem["seen"] for problem in document["problems"] if problem["severity"] == "fail"]
    assert (
        said
        == [f"cannot listen on port {number} (HVDTUNE_RENDEZVOUS_PORT) (Address already in use)"]
        * listens
    )


def test_a_port_that_is_none_is_refused(call, monkeypatch):
    monkeypatch.setenv("HVDTUNE_RENDEZVOUS_PORT", "70000")
    code, out, err = call("preflight")
    assert (code, out) == (2, "")
    assert err.startswith("hvdtune: error: HVDTUNE_RENDEZVOUS_PORT=70000 is not a port. Set a port")


def test_a_key_that_is_none_is_refused(call, monkeypatch):
    monkeypatch.setenv("HVDTUNE_KEY_FILE", "/proc/absent")
    code, out, err = call("preflight")
    assert (code, out) == (2, "")
    assert err.startswith(
        "hvdtune: error: HVDTUNE_KEY_FILE=/proc/absent does not exist. Make a key"
    )


SKEWED = """
import runpy, sys, time
real = time.time_ns
time.time_ns = lambda: real() + 5_000_000_000
sys.argv = ["probe"]
runpy.run_module("hvdtune.launcher.preflight.probe", run_name="__main__")
"""
OLD = """
import os
os.write(1, b"motd\\n\\0hvdtune-agent\\nH\\0\\0\\0\\x050.0.9")
os.read(0, 1)
"""


@pytest.mark.parametrize(
    ("program", "code", "said"),
    [
        (SKEWED, 0, "warn  127.0.0.2: its clock is 5.0 s ahead of this host's: run chrony"),
        (OLD, 1, "FAIL  127.0.0.2: it has hvdtune 0.0.9, this host "),
        (
            "import hvdtune_absent",
            1,
            "FAIL  127.0.0.2: hvdtune cannot be imported (ModuleNotFoundError: No module named "
            "'hvdtune_absent'): install hvdtune ",
        ),
    ],
    ids=["clock", "version", "absent"],
)
def test_a_host_that_is_not_like_the_others_is_told(call, monkeypatch, program, code, said):
    command = workflow.probe_command

    def start(name, **how):
        words = command(name, **how)
        return [words[0], "-c", program] if name == "127.0.0.2" else words

    monkeypatch.setattr(workflow, "probe_command", start)
    got, out, _ = call("preflight", "-H", "127.0.0.1:1,127.0.0.2:1")
    assert got == code
    assert any(line.strip().startswith(said) for line in out.splitlines()), out
    assert ("A job would fail here: 1 problem." in out) == bool(code)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("-H a:x", "-H: 'a:x' is not a host"),
        ("-H a:1 --hostfile h", "give -H or --hostfile, not both"),
        ("-H [::1:2", "'[::1:2' is not a host"),
        ("-H a:1 -i /proc/absent", "--ssh-identity-file /proc/absent: there is no such file"),
        ("--ssh-port 0", "'--ssh-port' / '-p': it must be at least 1"),
    ],
)
def test_a_mistake_is_one_sentence(call, words, said):
    code, out, err = call("preflight", *words.split())
    assert (code, out) == (2, "")
    assert said in err and err.count("\n") == 1


def test_a_name_that_nobody_knows_is_a_failure_of_its_host(call):
    code, out, _ = call("preflight", "-H", "localhost:1,node7.invalid:1")
    assert code == 1
    assert "FAIL  node7.invalid: this host cannot resolve the name (" in out
    assert "node7.invalid  FAILED: name" in out
    assert "?: not tried because one of the two hosts failed" in out


@pytest.mark.parametrize(
    ("numbers", "text"), [((), ""), ((3,), "3"), ((0, 1, 2, 5, 7, 8), "0-2,5,7-8")]
)
def test_processors_are_told_in_short(numbers, text):
    assert ranges(numbers) == text


@pytest.mark.parametrize(
    ("count", "row"),
    [(3, ["h0", "-", "1,200,", "85", "UNREACHABLE"]), (13, ["1", "h0", "-", "+", "U", *"+" * 10])],
)
def test_the_matrix_has_figures_while_they_fit(count, row):
    failure = HostFailure("answer", "seen", "advice")
    hosts = [HostReport(f"h{n}", 1, is_local=False, failure=failure) for n in range(count)]
    pairs = [
        PairReport(
            "h0", f"h{n}", "unreachable" if n == 2 else "ok", round_trip_us=85.4,
            round_trips=9, mib_per_s=1200.0, blocks=0 if n == 2 else 3,
        )
        for n in range(1, count)
    ]  # fmt: skip
    problem = Problem("fail", "port", "h0", "h2", "seen", "advice")
    lines = render(PreflightReport(tuple(hosts), tuple(pairs), (problem,))).splitlines()
    assert row in [line.split() for line in lines]
    assert lines[-1] == "A job would fail here: 1 problem."
    assert "  FAIL  h0 -> h2: seen: advice" in lines
