"""Ranks on another host: a network namespace with a real sshd, reached by the real ssh."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from hvdtune.errors import UsageError
from hvdtune.launcher.control import connect
from tests.kit import programs
from tests.launcher.elastic.test_job import GROWING, TRAINING
from tests.parallel import netns


def why_not():
    missing = [tool for tool in ("ssh", "ssh-keygen") if not shutil.which(tool)]
    if not Path("/usr/sbin/sshd").exists():
        missing.append("sshd")
    return f"not installed: {', '.join(missing)} (of OpenSSH)" if missing else netns.why_not()


pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not())

# What a user's machines have that hosts made of namespaces lack: a configuration of ssh.
CLIENT = """\
#!/bin/sh
exec /usr/bin/ssh -F {folder}/config "$@"
"""
INIT = """\
import os, sys, time, socket
from hvdtune.core.rank.collectives import barrier
from hvdtune.core.rank.runtime import init, rank
init()
"""


@pytest.fixture(scope="module")
def hosts(tmp_path_factory):
    """The launcher's host and another one, which has a login at port 2222."""
    folder = tmp_path_factory.mktemp("ssh")
    for key in ("host", "user", "other"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / key], check=True
        )
    Path("/run/sshd").mkdir(exist_ok=True)
    with netns.network(2) as network:
        here, there = network.hosts
        (folder / "sshd_config").write_text(
            f"ListenAddress {there.address}\nPort 2222\nHostKey {folder}/host\nStrictModes no\n"
            f"AuthorizedKeysFile {folder}/user.pub\nPermitRootLogin yes\nPidFile none\n"
        )
        host_key = (folder / "host.pub").read_text().rpartition(" ")[0]
        (folder / "known_hosts").write_text(f"[{there.address}]:2222 {host_key}\n")
        (folder / "config").write_text(f"UserKnownHostsFile {folder}/known_hosts\n")
        client = folder / "bin" / "ssh"
        client.parent.mkdir()
        client.write_text(CLIENT.format(folder=folder))
        client.chmod(0o755)
        with there.entered():
            server = subprocess.Popen(
                ["/usr/sbin/sshd", "-D", "-e", "-f", folder / "sshd_config"],
                stderr=subprocess.PIPE,
            )
        assert server.stderr is not None
        assert b"listening" in server.stderr.readline()
        yield here, there, folder
        server.terminate()
        server.communicate()


@pytest.fixture
def launch(hosts, tmp_path):
    """Starts `hvdtune WORD...` on the launcher's host, in an empty folder."""
    here, _, folder = hosts
    started = []

    def start(*words, program=(sys.executable, "-m", "hvdtune"), key="user"):
        environ = programs.environ(PATH=os.pathsep.join([str(folder / "bin"), os.environ["PATH"]]))
        with here.entered():
            process = subprocess.Popen(
                [
                    *program,
                    *(
                        str(word)
                        .replace("KEY", str(folder / key))
                        .replace("OTHER", str(folder / "other"))
                        for word in words
                    ),
                ],
                cwd=tmp_path,
                env=environ,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


LOGIN = ("-p", 2222, "-i", "KEY")


def on(hosts):
    here, there, _ = hosts
    return ("-H", f"{here.address}:1,{there.address}:1", *LOGIN)


def finish(process):
    stdout, stderr = process.communicate()
    return process.returncode, stdout, stderr


@pytest.mark.parametrize(
    ("where", "places"),
    [
        ("{here}:2,{there}:2", ["host-0 0 0", "host-0 1 0", "host-1 0 1", "host-1 1 1"]),
        ("{there}:2", ["host-1 0 0", "host-1 1 0"]),
    ],
    ids=["two-hosts", "all-ranks-elsewhere"],
)
def test_ranks_of_other_hosts_train_together(hosts, launch, tmp_path, where, places):
    (tmp_path / "train.py").write_text(
        INIT + "from hvdtune.core.rank.objects import allgather_object\n"
        "from hvdtune.core.rank.runtime import cross_rank, local_rank\n"
        "print(socket.gethostname(), local_rank(), cross_rank(), allgather_object(rank()),"
        " sys.argv[1:])\n"
    )
    here, there, _ = hosts
    words = ("-H", where.format(here=here.address, there=there.address), *LOGIN)
    code, out, err = finish(launch("run", *words, "train.py", "--lr", "a b"))
    assert code == 0, err
    ranks = [*range(len(places))]
    assert sorted(line.partition(">:")[2] for line in out.splitlines()) == [
        f"{place} {ranks} ['--lr', 'a b']" for place in places
    ]


@pytest.mark.parametrize(
    ("end", "code", "said"),
    [
        ("sys.exit(7)", 7, "rank 1 exited with code 7"),
        ("os.kill(os.getpid(), 9)", 137, "rank 1 was killed by SIGKILL"),
        ("os.abort()", 134, "rank 1 was killed by SIGABRT"),
    ],
)
def test_a_rank_elsewhere_ends_as_one_here(hosts, launch, tmp_path, end, code, said):
    (tmp_path / "train.py").write_text(INIT + f"if rank() == 1:\n    {end}\nbarrier()\n")
    returned, _, err = finish(launch("run", *on(hosts), "train.py"))
    assert returned == code, err
    assert said in err.splitlines()[-1]


def pids(process, count):
    """As the ranks print them."""
    return [int(process.stdout.readline().partition(">:")[2]) for _ in range(count)]


def wait_until_gone(numbers):
    for _ in range(2000):
        alive = []
        for number in numbers:
            with contextlib.suppress(psutil.NoSuchProcess):
                if psutil.Process(number).status() != psutil.STATUS_ZOMBIE:
                    alive.append(number)
        if not alive:
            return
        time.sleep(0.05)
    pytest.fail(f"still running: {alive}")


FOREVER = INIT + (
    "import subprocess\n"
    "child = subprocess.Popen(['sleep', '1000'])\n"
    "print(os.getpid(), flush=True); print(child.pid, flush=True)\n"
    "time.sleep(1000)\n"
)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_elsewhere_when_the_launcher_is_ended(hosts, launch, tmp_path, number):
    (tmp_path / "train.py").write_text(FOREVER)
    process = launch("run", *on(hosts), "train.py")
    ranks = pids(process, 4)
    process.send_signal(number)
    process.wait()
    wait_until_gone(ranks)


def test_a_rank_elsewhere_is_asked_to_end_before_it_is_made_to(hosts, launch, tmp_path):
    (tmp_path / "train.py").write_text(
        INIT + "import signal\n"
        "def bye(number, frame):\n    print('asked', flush=True); sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, bye)\n"
        "print('ready', flush=True)\n"
        "while True:\n    time.sleep(0.1)\n"
    )
    process = launch("run", *on(hosts), "train.py")
    assert process.stdout is not None
    assert {process.stdout.readline()[3:] for _ in range(2)} == {"<stdout>:ready\n"}
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate()
    assert sorted(out.splitlines()) == ["[0]<stdout>:asked", "[1]<stdout>:asked"]


def test_who_asks_the_launcher_is_told_the_steps_of_all_hosts(hosts, launch, tmp_path):
    (tmp_path / "train.py").write_text(
        INIT + "from hvdtune.core.rank.runtime import native\n"
        "while True:\n    barrier()\n    native().mark_step()\n    time.sleep(0.01)\n"
    )
    job = launch("run", *on(hosts), "train.py")
    give_up_s = time.monotonic() + 60
    with hosts[0].entered(), contextlib.ExitStack() as stack:
        caller = None
        while caller is None:
            with contextlib.suppress(UsageError):  # it does not listen yet
                caller = stack.enter_context(connect(str(job.pid)))
            assert job.poll() is None
            assert time.monotonic() < give_up_s
        steps = []
        while len(steps) < 10:
            found = caller.steps(1, len(steps))
            assert found.first == len(steps)
            steps += found.durations_us
            assert time.monotonic() < give_up_s
        assert caller.state().remote == 1
    assert all(len(row) == 2 and min(row) > 0 for row in steps)


def test_a_host_that_is_discovered_later_joins(hosts, launch, tmp_path):
    here, there, _ = hosts
    (tmp_path / "hosts.sh").write_text(GROWING.format(here.address, there.address))
    words = ("--min-np", 1, "--host-discovery-script", "sh hosts.sh", *LOGIN, "--")
    code, out, err = finish(launch("run", *words, TRAINING, 24, 1, "0:3:grow"))
    assert code == 0, err
    assert out.count("every sample once; sizes 1,1,2,2,2,2,2;") == 2
    assert "generation 1 has 2 ranks on 2 hosts" in err


def test_the_trace_has_the_ranks_of_all_hosts(hosts, launch, tmp_path):
    (tmp_path / "train.py").write_text(INIT + "for _ in range(3):\n    barrier()\n")
    words = ("--timeline-filename", "trace.json", "train.py")
    code, _, err = finish(launch("run", *on(hosts), *words))
    assert code == 0, err
    trace = json.loads((tmp_path / "trace.json").read_text())
    assert {event["pid"] for event in trace["traceEvents"]} >= {0, 1}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["trace.json", "train.py"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("-p", 2222, "-i", "OTHER"), "Permission denied"),
        (("-p", 2223, "-i", "KEY"), "Connection refused"),
    ],
)
def test_a_login_that_fails_ends_the_job_with_sshs_words(hosts, launch, tmp_path, words, said):
    (tmp_path / "train.py").write_text(INIT)
    where = on(hosts)[:2]
    code, _, err = finish(launch("run", *where, *words, "train.py"))
    assert code == 1
    assert said in err
    (line,) = (line for line in err.splitlines() if "hvdtune: 10.177.1.2:" in line)
    assert line.startswith("[1]<stderr>:") and "ssh cannot log in without a prompt" in line
    assert "[1]<stderr>:Traceback" not in err


def test_a_function_returns_its_results_from_another_host(hosts, launch, tmp_path):
    here, there, folder = hosts
    (tmp_path / "caller.py").write_text(
        "import socket, hvdtune\n"
        "def name(greeting):\n"
        "    from hvdtune.core.rank.runtime import init, rank\n"
        "    init()\n"
        "    return greeting, socket.gethostname(), rank()\n"
        "if __name__ == '__main__':\n"
        f"    print(hvdtune.run(name, ('hi',), num_proc=2, ssh_port=2222,\n"
        f"        ssh_identity_file={str(folder / 'user')!r},\n"
        f"        hosts='{here.address}:1,{there.address}:1'))\n"
    )
    code, out, err = finish(launch("caller.py", program=(sys.executable,)))
    assert code == 0, err
    assert out == "[('hi', 'host-0', 0), ('hi', 'host-1', 1)]\n"


@pytest.fixture
def closed_ports(hosts):
    """The other host takes connections to its sshd only, and drops what would open others."""
    _, there, _ = hosts
    there.run("nft", "add table inet closed")
    there.run("nft", "add chain inet closed input { type filter hook input priority 0; }")
    first = "tcp flags & (syn | ack) == syn"
    there.run("nft", f"add rule inet closed input tcp dport != 2222 {first} drop")
    yield
    there.run("nft", "delete table inet closed")


def checked(hosts, launch, *words):
    """The exit code, hosts by name, ways by names and sentences of `hvdtune preflight --json`."""
    code, out, err = finish(launch("preflight", "--json", *words))
    assert out, err
    document = json.loads(out)
    ways = {(pair["source"], pair["target"]): pair for pair in document["pairs"]}
    said = [f"{row['host']} {row['target']}: {row['seen']}" for row in document["problems"]]
    return code, {host["name"]: host for host in document["hosts"]}, ways, said


@pytest.mark.slow
def test_the_check_finds_that_hosts_reach_each_other(hosts, launch):
    here, there, _ = hosts
    code, found, ways, said = checked(hosts, launch, *on(hosts))
    assert (code, [line for line in said if "/dev/shm" not in line]) == (0, [])
    assert found[there.address]["facts"]["hostname"] == "host-1"
    assert found[there.address]["address"] == there.address
    assert {pair: way["state"] for pair, way in ways.items()} == {
        (here.address, there.address): "ok",
        (there.address, here.address): "ok",
    }


@pytest.mark.slow
def test_the_check_finds_the_way_that_is_closed(hosts, launch, closed_ports):
    here, there, _ = hosts
    code, _, ways, said = checked(hosts, launch, *on(hosts))
    assert code == 1
    assert ways[there.address, here.address]["state"] == "ok"
    way = ways[here.address, there.address]
    assert (way["state"], way["blocks"]) == ("unreachable", 0)
    wanted = f"port {way['port']} of {there.address}: no answer within 5 s"
    assert f"{here.address} {there.address}: {wanted}" in said


_MEETING_PORT = 23456


@pytest.mark.slow
@pytest.mark.parametrize("closed", [False, True], ids=["open", "closed"])
def test_the_check_finds_whether_the_port_of_the_meeting_is_closed(
    hosts, launch, monkeypatch, closed
):
    here, there, _ = hosts
    monkeypatch.setenv("HVDTUNE_RENDEZVOUS_PORT", str(_MEETING_PORT))
    here.run("nft", "add table inet closed")
    here.run("nft", "add chain inet closed input { type filter hook input priority 0; }")
    if closed:
        here.run("nft", f"add rule inet closed input tcp dport {_MEETING_PORT} drop")
    try:
        code, found, ways, said = checked(hosts, launch, *on(hosts))
    finally:
        here.run("nft", "delete table inet closed")
    assert found[here.address]["meeting_port"] == _MEETING_PORT
    way = ways[there.address, here.address]
    assert (code, way["state"], bool(way["meeting_fault"])) == (int(closed), "ok", closed)
    told = [line for line in said if "HVDTUNE_RENDEZVOUS_PORT" in line]
    assert len(told) == closed
    assert not told or told[0].endswith(f"at {here.address}: no answer within 5 s")


@pytest.mark.slow
def test_the_check_asks_whether_hosts_reach_a_launcher_without_ranks(hosts, launch):
    _, there, _ = hosts
    code, found, ways, _ = checked(hosts, launch, "-H", f"{there.address}:1", *LOGIN)
    assert code == 0
    assert found["host-0"]["slots"] == 0
    assert [(pair, way["state"]) for pair, way in ways.items()] == [
        ((there.address, "host-0"), "ok")
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "said"),
    [(("-p", 2222, "-i", "OTHER"), "Permission denied"), (("-p", 2223), "Connection refused")],
)
def test_the_check_tells_why_nobody_can_log_in(hosts, launch, words, said):
    _, there, _ = hosts
    code, found, ways, sentences = checked(hosts, launch, *on(hosts)[:2], *words)
    assert code == 1
    assert found[there.address]["failure"]["check"] == "ssh"
    assert any(said in line for line in sentences)
    assert {way["state"] for way in ways.values()} == {"unknown"}
