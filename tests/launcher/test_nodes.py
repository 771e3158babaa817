"""One `hvdtune run` on each node: the first launches, the others run what it says."""

import hmac
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
from contextlib import ExitStack, closing, suppress

import pytest

from hvdtune import __version__
from hvdtune.cli.app import app
from hvdtune.cli.cluster.nodes import asked_alike
from hvdtune.core.config.environment import Config, crowded_place, node_meeting
from hvdtune.core.job import proof
from hvdtune.core.job.records import RecordChannel, RecordTags
from hvdtune.errors import LaunchError, UsageError
from hvdtune.launcher import frames
from hvdtune.launcher.nodes import slots as node_slots
from hvdtune.launcher.nodes.admission import MOST_HALF_OPEN, Admission
from hvdtune.launcher.nodes.control import NodeFacts, digests
from hvdtune.launcher.nodes.gathering import require_same
from hvdtune.launcher.nodes.slots import slots_of_lone_node, slots_of_node
from hvdtune.launcher.nodes.way import NodeWay, derive_job_key, new_job_key
from hvdtune.launcher.relay import relay_command
from hvdtune.launcher.spawn import sealed_file

_KEY = b"k" * 32


@pytest.fixture
def ends():
    """A listener's address and the first connection to it, as `accept` sees it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def admitted(server, key=_KEY, purpose=proof.RANK, number=3, wait_s=5.0):
    """Whether the next connection is, once it has been asked."""
    said = []

    def accept():
        connection, _ = server.accept()
        with connection:
            try:
                said.append(proof.accept(connection, key, purpose, number, wait_s))
            except proof.UnprovedError:
                said.append(None)

    thread = threading.Thread(target=accept)
    thread.start()

    def result():
        thread.join(20)
        return said[0]

    return result


def test_whoever_has_the_key_is_admitted_and_both_know_it(ends):
    result = admitted(ends)
    connection, session = proof.dial(ends.getsockname(), _KEY, proof.RANK, 3, 5)
    connection.close()
    assert result() == session != _KEY and len(session) == 32


@pytest.mark.parametrize(
    ("key", "purpose", "number"),
    [(b"x" * 32, proof.RANK, 3), (_KEY, proof.CONTROL, 3), (_KEY, proof.RANK, 2)],
    ids=["key", "purpose", "led-to-another-node"],
)
def test_others_are_not_and_are_told_nothing(ends, key, purpose, number):
    result = admitted(ends)
    with pytest.raises(proof.CutOffError):
        proof.dial(ends.getsockname(), key, purpose, number, 5)
    assert result() is None


def test_every_connection_has_a_session_of_its_own_even_with_an_old_nonce(ends, monkeypatch):
    sessions = set()
    nonces = iter([b"a" * 32, b"b" * 32, b"a" * 32, b"c" * 32])  # in turn the dialer's, the other's
    monkeypatch.setattr(proof.os, "urandom", lambda _: next(nonces))
    for _ in range(2):
        result = admitted(ends)
        connection, session = proof.dial(ends.getsockname(), _KEY, proof.RANK, 3, 5)
        connection.close()
        assert result() == session
        sessions.add(session)
    assert len(sessions) == 2


@pytest.mark.parametrize(
    "sent",
    [b"", b"r", b"GET / HTTP/1.1\r\n\r\n" * 20, b"r" + bytes(64), bytes(65)],
    ids=["nothing", "one-byte", "http", "a-wrong-proof", "another-purpose"],
)
def test_what_is_no_proof_is_none(ends, sent):
    result = admitted(ends)
    with socket.create_connection(ends.getsockname()) as connection:
        connection.sendall(sent)
        with suppress(OSError):  # it has hung up already
            connection.shutdown(socket.SHUT_WR)
        assert result() is None


def test_a_server_without_the_key_is_found_out(ends):
    def impostor():
        connection, _ = ends.accept()
        with connection:
            connection.recv(33)
            connection.sendall(bytes(32))
            connection.recv(32)
            connection.sendall(bytes(32))

    thread = threading.Thread(target=impostor)
    thread.start()
    with pytest.raises(LaunchError, match="does not have this job's key"):
        proof.dial(ends.getsockname(), _KEY, proof.RANK, 3, 5)
    thread.join(20)


@pytest.fixture
def door():
    """An admission with its address; whoever it has let in comes by the queue."""
    came = queue.SimpleQueue()
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    address = listener.getsockname()
    with closing(Admission(listener, _KEY, proof.RANK, 3, lambda *proved: came.put(proved))):
        yield address, came


@pytest.mark.parametrize("strangers", [8, 2 * MOST_HALF_OPEN])
def test_strangers_who_say_nothing_keep_nobody_out(door, strangers):
    address, came = door
    with ExitStack() as stack:
        for _ in range(strangers):
            stack.enter_context(socket.create_connection(address))
        connection, session = proof.dial(address, _KEY, proof.RANK, 3, 60)
        accepted, known = came.get(timeout=60)
        assert known == session
        for each in (connection, accepted):
            each.close()
    assert came.empty()


def test_the_oldest_stranger_makes_room(door):
    address, _ = door
    with ExitStack() as stack:
        first, *_ = [
            stack.enter_context(socket.create_connection(address))
            for _ in range(MOST_HALF_OPEN + 1)
        ]
        first.settimeout(60)
        assert first.recv(1) == b""


@pytest.fixture
def channels():
    """Both ends of an authenticated connection, and the raw connection between them."""
    with ExitStack() as stack:
        pairs = [socket.socketpair() for _ in range(2)]
        for each in sum(pairs, ()):
            stack.callback(each.close)
        made = [
            RecordChannel(pair[0], _KEY, dialed=dialed)
            for pair, dialed in zip(pairs, (True, False), strict=True)
        ]
        for each in made:
            stack.callback(each.close)
        yield (*made, pairs[0][1], pairs[1][1])


def received(end, count):
    data = b""
    while len(data) < count and (more := end.recv(count - len(data))):
        data += more
    return data


@pytest.mark.parametrize("count", [1, 4096, 200_000])
def test_what_is_sent_arrives(channels, count):
    one, other, tapped, onward = channels
    sent = bytes(count - 1) + b"x"
    thread = threading.Thread(target=lambda: (one.local.sendall(sent), one.local.close()))
    thread.start()
    while more := tapped.recv(1 << 16):
        onward.sendall(more)
    onward.shutdown(socket.SHUT_WR)
    assert received(other.local, count + 1) == sent
    thread.join(20)


@pytest.mark.parametrize("change", ["bit", "length", "again", "backwards", "cut"])
def test_what_was_changed_on_the_way_is_not_used(channels, change):
    one, other, tapped, onward = channels
    one.local.sendall(b"first")
    first = received(tapped, 4 + 5 + 32)
    one.local.sendall(b"other")
    second = received(tapped, 4 + 5 + 32)
    flipped = first[:6] + bytes([first[6] ^ 1]) + first[7:]
    wrong, used = {
        "bit": (flipped, b""),
        "length": (b"\xff" + first[1:], b""),
        "again": (first + first, b"first"),
        "backwards": (second + first, b""),
        "cut": (first + second[:-1], b"first"),
    }[change]
    onward.sendall(wrong)
    onward.shutdown(socket.SHUT_WR)
    assert received(other.local, 100) == used


@pytest.mark.parametrize(
    ("session", "direction"),
    [(b"K" * 32, b"from the dialer"), (_KEY, b"from the acceptor")],
    ids=["another-connection", "the-other-direction"],
)
def test_a_record_of_elsewhere_is_not_opened(session, direction):
    record = RecordTags(session, direction).pack(b"first")
    assert RecordTags(_KEY, b"from the dialer").unpack(record[:-32], record[-32:]) is None


def test_records_are_what_the_page_says():
    """Made here once more by its words alone."""

    def keyed(key, text):
        return hmac.digest(key, text, "sha256")

    tags = RecordTags(_KEY, b"from the dialer")
    for number in range(2):
        body = (5).to_bytes(4, "big") + b"first"
        tag = keyed(keyed(_KEY, b"tag from the dialer"), number.to_bytes(8, "big") + body)
        assert tags.pack(b"first") == body + tag


def test_nothing_more_is_said_to_whoever_has_changed_a_record(channels):
    one, other, tapped, onward = channels
    one.local.sendall(b"first")
    record = received(tapped, 4 + 5 + 32)
    onward.sendall(record[:-1] + bytes([record[-1] ^ 1]))
    assert received(other.local, 1) == b""
    with suppress(OSError):  # which end of `other` finds out first
        other.local.sendall(b"an answer")
    onward.settimeout(60)
    assert received(onward, 1) == b""


def test_what_one_end_has_sent_is_not_its_own_answer(channels):
    one, _, tapped, _ = channels
    one.local.sendall(b"first")
    tapped.sendall(received(tapped, 4 + 5 + 32))
    assert received(one.local, 100) == b""


def test_neither_keys_nor_the_environment_travel_to_a_node(tmp_path):
    """The test is the node; it reads every byte that the relay sends."""
    key, nonce = b"n" * 32, b"1" * 32
    job_key = derive_job_key(key, nonce)
    environ = os.environ | {"PASSWORD": "hunter22", "HVDTUNE_RANK": "1", "HVDTUNE_KEY_FD": "3"}
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        sealed_file("common", key) as common_fd,
        sealed_file("job", job_key) as job_fd,
    ):
        names = ("HVDTUNE_RANK", "HVDTUNE_KEY_FD")
        way = NodeWay(3, *server.getsockname(), common_fd, nonce.hex(), names)
        command = relay_command("far", (), 60, [job_fd], ["train.py", "--token", "hunter22"], way)
        with subprocess.Popen(command, env=environ, pass_fds=[common_fd, job_fd]) as relay:
            connection, _ = server.accept()
            session = proof.accept(connection, key, proof.RANK, 3, 60)
            answers = RecordTags(session, b"from the acceptor")
            hello = frames.MAGIC + frames.frame(frames.HELLO, __version__.encode())
            connection.sendall(answers.pack(hello))
            sent = connection.recv(1 << 16)
            code = (7).to_bytes(4, "big")
            connection.sendall(answers.pack(frames.frame(frames.EXIT, code)))
            while more := connection.recv(1 << 16):
                sent += more
            connection.close()
        assert relay.returncode == 7
    assert b"HVDTUNE_RANK" in sent and nonce in sent
    assert not [secret for secret in (b"hunter22", key, job_key) if secret in sent]


def test_a_job_key_follows_from_the_common_key_and_is_new_each_time():
    with sealed_file("common", _KEY) as key_fd:
        made = [new_job_key({"b": NodeWay(1, "b", 1, key_fd)}) for _ in range(2)]
    assert len({key for key, _ in made}) == 2
    for key, nonce in made:
        assert key == derive_job_key(_KEY, bytes.fromhex(nonce)) != _KEY


def node(number, size=2, **changes):
    return {
        "SLURM_JOB_ID": "42",
        "SLURM_STEP_ID": "0",
        "SLURM_PROCID": str(number),
        "SLURM_STEP_NUM_TASKS": str(size),
        "SLURM_NODEID": str(number),
        "SLURM_LOCALID": "0",
        "SLURM_STEP_TASKS_PER_NODE": f"1(x{size})",
        "SLURM_STEP_NODELIST": ",".join(["localhost"] * size),
        "SLURMD_NODENAME": f"127.0.0.{number + 2}",
        "CUDA_VISIBLE_DEVICES": str(number + 5),
    } | changes


@pytest.mark.parametrize(
    ("environ", "meets"),
    [
        ({}, False),
        (node(1), True),
        (node(0, 1), False),
        (node(1) | {"SLURM_STEP_TASKS_PER_NODE": "2"}, False),
        (node(1) | {"HVDTUNE_STARTED_BY": "none"}, False),
        (node(1) | {"HVDTUNE_RENDEZVOUS": "a:1", "HVDTUNE_RANK": "0", "HVDTUNE_SIZE": "2"}, False),
        ({"PET_NNODES": "2", "PET_NODE_RANK": "1", "PET_MASTER_ADDR": "a"}, True),
        ({"FLUX_TASK_RANK": "1", "FLUX_JOB_SIZE": "2", "FLUX_JOB_NNODES": "2"}, True),
        ({"FLUX_TASK_RANK": "1", "FLUX_JOB_SIZE": "4", "FLUX_JOB_NNODES": "2"}, False),
    ],
)
def test_launchers_meet_where_each_host_has_one(environ, meets):
    assert (node_meeting(environ) is not None) is meets


@pytest.mark.parametrize(
    ("environ", "is_crowded"),
    [
        ({}, False),
        (node(1), False),
        (node(1) | {"SLURM_STEP_TASKS_PER_NODE": "2"}, True),
        (node(1) | {"SLURM_STEP_TASKS_PER_NODE": "2", "HVDTUNE_STARTED_BY": "none"}, False),
        ({"FLUX_TASK_RANK": "1", "FLUX_JOB_SIZE": "4", "FLUX_JOB_NNODES": "2"}, True),
        ({"PMI_RANK": "0", "PMI_SIZE": "2"}, True),
        ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1"}, False),
    ],
)
def test_several_launchers_on_a_host_are_known(environ, is_crowded):
    assert (crowded_place(environ) is not None) is is_crowded


@pytest.mark.parametrize(
    ("environ", "slots"),
    [
        ({}, 1),
        ({"SLURM_GPUS_ON_NODE": "4"}, 4),
        ({"PET_NPROC_PER_NODE": "2"}, 2),
        ({"SM_NUM_GPUS": "0"}, 1),
    ],
)
def test_a_node_has_a_rank_for_each_gpu_that_it_was_given(environ, slots):
    assert slots_of_node(environ) == slots


@pytest.mark.parametrize(
    ("asked", "gpus", "slots"),
    [("auto", 4, 4), ("auto", 0, 6), ("gpu", 4, 4), ("cpu", 4, 6)],
)
def test_processes_of_a_node_are_counted_as_torchrun_does(monkeypatch, asked, gpus, slots):
    monkeypatch.setattr(node_slots.nccl, "report", lambda *_: {"gpus": ["H100"] * gpus})
    monkeypatch.setattr(node_slots, "usable_processors", lambda: 6)
    assert slots_of_node({"PET_NPROC_PER_NODE": asked}) == slots


@pytest.mark.parametrize("asked", ["0", "-1", "two", "gpu", "²"])
def test_a_number_of_processes_that_cannot_be_is_refused(monkeypatch, asked):
    monkeypatch.setattr(node_slots.nccl, "report", lambda *_: {})
    with pytest.raises(UsageError, match=f"^PET_NPROC_PER_NODE={asked}"):
        slots_of_node({"PET_NPROC_PER_NODE": asked})


_LONE = {"PET_NNODES": "1", "PET_NODE_RANK": "0", "PET_MASTER_ADDR": "a"}


@pytest.mark.parametrize(
    ("environ", "slots"),
    [
        (_LONE | {"PET_NPROC_PER_NODE": "2"}, 2),
        ({"SM_HOSTS": '["a"]', "SM_CURRENT_HOST": "a", "SM_NUM_GPUS": "2"}, 2),
        (_LONE | {"PET_NNODES": "2"}, None),
        ({"SLURM_GPUS_ON_NODE": "4"}, None),
    ],
)
def test_the_only_node_of_a_platform_has_the_ranks_that_it_says(environ, slots):
    assert slots_of_lone_node(environ) == slots


@pytest.mark.parametrize(
    "environ",
    [
        {"PALS_RANKID": "1"},
        {"PMI_RANK": "1", "PALS_RANKID": "1"},
        {"OMPI_COMM_WORLD_RANK": "1", "SLURM_PROCID": "0"},
    ],
)
def test_a_launcher_that_was_told_half_a_place_refuses_it_as_init_does(environ):
    refusals = []
    for ask in (node_meeting, Config.from_environ):
        with pytest.raises(UsageError) as refused:
            ask(environ)
        refusals.append(str(refused.value))
    assert refusals[0] == refusals[1]


def test_a_launcher_that_was_told_no_size_does_not_launch_a_job_of_its_own():
    with pytest.raises(
        UsageError, match=r"^PMIX_RANK is set, but the number .* HVDTUNE_STARTED_BY=no"
    ):
        node_meeting({"PMIX_RANK": "0"})


def asked(*words):
    """What `hvdtune run` with these words asks of every node."""
    return asked_alike(app(["run", *words], standalone_mode=False), "run")


_WORDS = ("-np", "4", "--trials", "3", "train.py", "--lr", "0.1")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("-np", "4", "--trials", "3", "train.py", "--lr", "0.2"),
            "with another command",
        ),
        (
            ("-np", "4", "--trials", "3", "--", "true"),
            "the first node was started with the command train.py --lr 0.1.",
        ),
        (
            ("-np", "8", *_WORDS[2:]),
            "with another --num-proc; the first node was started with --num-proc 4.",
        ),
        (
            (*_WORDS[:2], *_WORDS[4:]),
            "without --trials; the first node was started with --trials 3.",
        ),
        (("--verbose", *_WORDS), "with --verbose; the first node was started without --verbose."),
    ],
    ids=["argument", "program", "number", "less", "more"],
)
def test_a_node_that_was_asked_for_something_else_is_refused(words, said):
    facts = NodeFacts("0", 1, "b", 2, "127.0.0.1", 4711, digests(_KEY, asked(*words)))
    assert "0.2" not in str(facts) and "true" not in str(facts)
    with pytest.raises(LaunchError) as refused:
        require_same(facts, asked(*_WORDS), _KEY)
    assert str(refused.value).startswith("Node 1 (b) was started ")
    assert said in str(refused.value)


@pytest.mark.parametrize(
    "words",
    [
        ("--slots-per-host", "3"),
        ("--network-interface", "lo"),
        ("--workbench-python", "/opt/wb/bin/python"),
    ],
)
def test_what_belongs_to_a_node_may_be_its_own(words):
    assert asked(*words, *_WORDS) == asked(*_WORDS)


SCRIPT = """
import os, sys, time
from hvdtune.core.rank.collectives import barrier
from hvdtune.core.rank import runtime

runtime.init()
barrier()
print("rank", runtime.rank(), "of", runtime.size(), "local", runtime.local_rank(),
      "on", os.environ["HVDTUNE_HOST"], "with GPU", os.environ["CUDA_VISIBLE_DEVICES"], flush=True)
{then}
"""


class Nodes:
    def __init__(self, folder, stack):
        self.folder, self._stack = folder, stack
        self.environ = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("HVDTUNE_", "HOROVOD_", "SLURM"))
        } | {"HVDTUNE_SHARED_FOLDER": str(folder)}

    def start(self, number, *words, size=2, then="", **variables):
        script = self.folder / "train.py"
        script.write_text(SCRIPT.format(then=then))
        return self._run([*words, str(script)], node(number, size) | variables)

    def start_by_hand(self, number):
        """One that runs nothing."""
        return self._run(["-np", "4", "--", "false"], {"HVDTUNE_NODE": str(number)})

    def _run(self, words, variables):
        process = subprocess.Popen(
            [sys.executable, "-m", "hvdtune", "run", *words],
            env=self.environ | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._stack.enter_context(process)
        self._stack.callback(process.kill)
        return process


@pytest.fixture
def nodes(tmp_path):
    tmp_path.chmod(0o700)
    with ExitStack() as stack:
        yield Nodes(tmp_path, stack)


@pytest.mark.parametrize(
    "key",
    [{}, pytest.param({"HVDTUNE_KEY": "5a" * 32}, marks=pytest.mark.slow)],  # the one as the other
    ids=["file", "port"],
)
def test_the_first_launches_on_all_of_them(nodes, key):
    words = ("-np", "3", "--slots-per-host", "2")
    first, second = (nodes.start(number, *words, **key) for number in (0, 1))
    out, error = first.communicate(timeout=100)
    assert first.returncode == 0, error
    told, said = second.communicate(timeout=100)
    assert (second.returncode, told, said) == (0, "", "")
    assert sorted(out.splitlines()) == [
        "[0]<stdout>:rank 0 of 3 local 0 on 127.0.0.2 with GPU 5",
        "[1]<stdout>:rank 1 of 3 local 1 on 127.0.0.2 with GPU 5",
        "[2]<stdout>:rank 2 of 3 local 0 on 127.0.0.3 with GPU 6",
    ]
    assert "srun started hvdtune on 2 nodes: 127.0.0.2:2,127.0.0.3:2" in error


@pytest.mark.parametrize(
    ("then", "code", "said"),
    [
        pytest.param(
            "sys.exit(7 * runtime.rank())", 7, "rank 1 exited with code 7", marks=pytest.mark.slow
        ),
        ("os.kill(os.getpid(), 9 * runtime.rank())", 137, "rank 1 was killed by SIGKILL"),
    ],
)
def test_all_of_them_end_as_the_job_does(nodes, then, code, said):
    first, second = (nodes.start(number, "-np", "2", then=then) for number in (0, 1))
    _, error = first.communicate(timeout=100)
    second.communicate(timeout=100)
    assert said in error
    assert (first.returncode, second.returncode) == (code, code)


def wait_for_line(process):
    return process.stdout.readline()


@pytest.mark.slow
def test_the_end_of_the_launcher_ends_the_others(nodes):
    first, second = (nodes.start(n, "-np", "2", then="time.sleep(1000)") for n in (0, 1))
    wait_for_line(first)
    first.send_signal(signal.SIGKILL)
    _, error = second.communicate(timeout=100)
    assert second.returncode == 1
    assert "The launcher on the first node: " in error


@pytest.mark.slow
def test_sigterm_to_all_of_them_ends_the_job(nodes):
    first, second = (nodes.start(n, "-np", "2", then="time.sleep(1000)") for n in (0, 1))
    wait_for_line(first)
    for process in (second, first):
        process.send_signal(signal.SIGTERM)
    codes = [process.wait(timeout=100) for process in (first, second)]
    assert codes == [143, 143]


DIES_WITH_ITS_NODE = """
if runtime.rank() == 1:
    os.kill(os.getppid(), 9)  # the agent, as if the host had gone
while True:
    barrier()
"""


@pytest.mark.slow
def test_a_node_that_dies_ends_the_job_and_is_named(nodes):
    first, second = (nodes.start(n, "-np", "2", then=DIES_WITH_ITS_NODE) for n in (0, 1))
    _, error = first.communicate(timeout=100)
    assert (
        "hvdtune: 127.0.0.3: The connection broke, or the agent on that host was killed." in error
    )
    assert first.returncode == second.wait(timeout=100) != 0


@pytest.mark.slow  # waits for the start timeout
@pytest.mark.parametrize(
    ("number", "key", "said"),
    [
        (0, {}, "Node 1 of 2 did not connect within 1 s"),
        (1, {}, "No file of rank 0 at "),
        (1, {"HVDTUNE_KEY": "5a" * 32}, "Connection refused. To use another host or port, set HV"),
    ],
)
def test_a_node_that_does_not_come_is_named(nodes, number, key, said):
    process = nodes.start(number, "-np", "2", "--start-timeout", "1", **key)
    _, error = process.communicate(timeout=100)
    assert process.returncode == 1 and said in error


@pytest.mark.parametrize(
    ("numbers", "key"),
    [
        ((0, 0), {}),
        ((0, 1, 1), {}),
        pytest.param((0, 0), {"HVDTUNE_KEY": "5a" * 32}, marks=pytest.mark.slow),  # as by file
    ],
    ids=["the-first-by-file", "another", "the-first-by-port"],
)
def test_two_nodes_of_one_number_are_named_to_all(nodes, numbers, key):
    told = {"HVDTUNE_NODES": str(len(numbers)), "HVDTUNE_JOB_ID": "mine"} | key
    nodes.environ |= told | {"HVDTUNE_START_TIMEOUT_S": "100"}
    if key:
        nodes.environ["HVDTUNE_RENDEZVOUS_HOST"] = "127.0.0.1"
    started = [nodes.start_by_hand(number) for number in numbers]
    for process in started:
        _, error = process.communicate(timeout=90)
        assert process.returncode == 1 and error.count("\n") == 1
        assert f"Two processes have the number {numbers[-1]} of {len(numbers)} nodes (" in error
        assert "(HVDTUNE_NODE and HVDTUNE_NODES): one on " in error


@pytest.mark.slow  # as the test of `require_same`
def test_nodes_that_were_started_differently_run_nothing(nodes):
    first, second = (nodes.start(number, "-np", str(number + 2)) for number in (0, 1))
    (out, error), (_, said) = (each.communicate(timeout=100) for each in (first, second))
    assert (first.returncode, second.returncode, out) == (1, 1, "")
    assert "Node 1 (127.0.0.3) was started with another --num-proc; the first node was" in error
    assert "The launcher on the first node" in said


@pytest.mark.slow  # waits for the start timeout
def test_a_node_with_another_key_says_so(nodes):
    started = [
        nodes.start(number, "-np", "2", HVDTUNE_KEY=key * 32, HVDTUNE_START_TIMEOUT_S="2")
        for number, key in enumerate(("5a", "5b"))
    ]
    errors = [process.communicate(timeout=100)[1] for process in started]
    assert "Node 1 of 2 did not connect within 2 s" in errors[0]
    assert "A process on 127.0.0." in errors[0] and "with another key (HVDTUNE_" in errors[0]
    assert "the process there has a different key" in errors[1]


def test_a_port_that_is_taken_is_named(nodes):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = str(taken.getsockname()[1])
        key = {"HVDTUNE_KEY": "5a" * 32, "HVDTUNE_RENDEZVOUS_PORT": port}
        _, error = nodes.start(0, "-np", "2", **key).communicate(timeout=100)
    assert error.count("\n") == 1
    assert error.startswith("hvdtune: error: The launcher cannot listen on ")
    assert f"port {port}, where the other nodes connect: Address already in use" in error
