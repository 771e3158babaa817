"""What goes wrong between hosts: every survivor names a rank on the other side, and nothing hangs.

`pytest -rP` shows how long the slowest rank took to raise.
"""

import os
import signal
import time
from dataclasses import replace

import pytest
import torch

import hvdtune.torch as hvd
from hvdtune.errors import RankLostError, RendezvousError
from tests.parallel import netns
from tests.parallel.ranks import run, start

pytestmark = pytest.mark.skipif(bool(netns.why_not()), reason=netns.why_not())

HEARTBEAT_S = 2.0
SIDES = ((0, 1), (2, 3))  # two ranks on each of two hosts


@pytest.fixture(scope="module")
def pair():
    with netns.network(2) as network:
        yield network


@pytest.fixture(autouse=True)
def intact(request):
    yield
    if "pair" in request.fixturenames:
        request.getfixturevalue("pair").mend()


@pytest.fixture
def wire(pair):
    """The two hosts by a cable between them, on which they have nothing but link-local addresses,
    and interfaces that are not called alike."""
    here, there = pair.hosts
    here.run("ip", "link", "add", "wire0", "type", "veth", "peer", "wire1", "netns", str(there.pid))
    places = []
    for host, interface, address in ((here, "wire0", "fe80::a"), (there, "wire1", "fe80::b")):
        host.run("ip", "link", "set", interface, "up")
        host.run("ip", "addr", "add", f"{address}/64", "dev", interface, "nodad")
        places.append(replace(host, address=f"{address}%{interface}"))
    yield places
    here.run("ip", "link", "del", "wire0")


def add_up():
    return hvd.allreduce(torch.full((3,), hvd.rank() + 1.0), op=hvd.Sum).tolist()


def test_link_local_addresses_lead_to_other_hosts(wire):
    assert run(add_up, 2, places=wire) == [[3.0] * 3] * 2


def two_by_two(network):
    return [network.hosts[0], network.hosts[0], network.hosts[1], network.hosts[1]]


def train_until_it_fails():
    gradient = torch.ones(300_000)
    try:
        while True:
            hvd.allreduce_(gradient, op=hvd.Max, name="gradient")
    except RankLostError as error:
        return error.rank, str(error)


def wait_until_formed(job):
    while (event := job.server.next_event(60.0))["type"] != "formed":
        assert event["type"] != "lost", event
    time.sleep(0.3)  # into the training


def check_survivors(outcomes, sides=SIDES):
    for outcome in outcomes:
        assert outcome.value is not None, outcome.trace
        culprit, text = outcome.value
        (mine,) = (side for side in sides if outcome.rank in side)
        assert culprit not in mine, f"rank {outcome.rank} blames its own side: {text}"
        assert f"rank {culprit}" in text


@pytest.mark.parametrize(
    "hierarchical",
    [
        pytest.param(False, id="direct"),
        pytest.param(True, id="hierarchical", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize(
    "directions",
    ["both", *(pytest.param(one, marks=pytest.mark.slow) for one in ("forth", "back"))],
)
def test_after_a_partition_every_rank_names_one_of_the_other_side(pair, directions, hierarchical):
    here, there = pair.hosts
    setting = {"hierarchical_allreduce": hierarchical}
    with start(
        train_until_it_fails,
        4,
        places=two_by_two(pair),
        heartbeat_s=HEARTBEAT_S,
        setting=setting,
    ) as job:
        wait_until_formed(job)
        if directions in ("both", "forth"):
            pair.rule(here, there, "drop")
        if directions in ("both", "back"):
            pair.rule(there, here, "drop")
        # Rank 0 still reaches those whose own words it does not hear: it tells one of the other.
        sides = ((0, 1), (2,), (3,)) if directions == "back" else SIDES
        check_survivors(job.outcomes(), sides)


def test_after_a_reset_every_rank_names_one_of_the_other_side(pair):
    here, there = pair.hosts
    with start(train_until_it_fails, 4, places=two_by_two(pair), heartbeat_s=HEARTBEAT_S) as job:
        wait_until_formed(job)
        pair.rule(here, there, "meta l4proto tcp reject with tcp reset")
        pair.rule(there, here, "meta l4proto tcp reject with tcp reset")
        check_survivors(job.outcomes())


def test_a_host_whose_ranks_are_all_frozen_is_named(pair):
    with start(train_until_it_fails, 4, places=two_by_two(pair), heartbeat_s=HEARTBEAT_S) as job:
        wait_until_formed(job)
        for rank in SIDES[1]:
            os.kill(job.pid(rank), signal.SIGSTOP)
        try:
            survivors = []
            for rank in SIDES[0]:
                assert job.results[rank].poll(30.0)
                survivors.append(job.outcome(rank))
        finally:
            for rank in SIDES[1]:
                os.kill(job.pid(rank), signal.SIGCONT)
        check_survivors(survivors)


def test_a_partition_that_rank_0_cannot_see_is_found_by_the_ranks_it_divides():
    with (
        netns.network(3) as trio,
        start(train_until_it_fails, 3, places=trio.hosts, heartbeat_s=HEARTBEAT_S) as job,
    ):
        wait_until_formed(job)
        trio.rule(trio.hosts[1], trio.hosts[2], "drop")
        trio.rule(trio.hosts[2], trio.hosts[1], "drop")
        sides = ((0,), (1,), (2,))
        outcomes = job.outcomes()
        check_survivors(outcomes, sides)
        assert outcomes[0].value[0] in (1, 2)


def leave_or_wait(go):
    hvd.barrier()
    if hvd.rank() == 0:
        while not go.exists():
            time.sleep(0.01)
        return None
    try:
        hvd.allreduce(torch.ones(1), name="never")
    except RankLostError as error:
        return str(error)


def test_who_leaves_through_a_network_that_drops_packets_is_not_taken_for_dead(pair, tmp_path):
    here, there = pair.hosts
    go = tmp_path / "go"
    with start(leave_or_wait, 2, go, places=pair.hosts, heartbeat_s=HEARTBEAT_S) as job:
        wait_until_formed(job)
        # What rank 0 says is dropped for a while; that its socket was closed would get through.
        pair.rule(here, there, "tcp flags & psh == psh drop")
        go.touch()
        time.sleep(HEARTBEAT_S / 2)
        pair.mend()
        _, waiting = job.outcomes()
    assert "rank 0 has shut down" in waiting.value, waiting.trace


def reduce_twice():
    tensor = torch.full((64_000,), float(hvd.rank()))
    return [hvd.allreduce(tensor, op=hvd.Sum, name=f"t{i}")[-1].item() for i in range(2)]


@pytest.mark.slow
def test_a_slow_network_is_not_a_dead_one(pair):
    pair.limit("1mbit", burst="16kb", latency="100ms")
    try:
        # Each host sends half a megabyte per operation: that takes longer than the heartbeat's
        # timeout.
        values = run(reduce_twice, 4, places=two_by_two(pair), heartbeat_s=HEARTBEAT_S)
    finally:
        pair.unlimit()
    assert values == [[6.0, 6.0]] * 4


def never_reached():
    return "the job was formed"


@pytest.mark.parametrize(
    ("rule", "text", "start_s"),
    [
        ("tcp flags & (syn | ack) == syn reject with tcp reset", "Connection refused", 60.0),
        # The kernel accepts, and then nothing that is said arrives.
        pytest.param(
            *("tcp flags & psh == psh drop", "was waiting for rank", 4.0), marks=pytest.mark.slow
        ),
        ("tcp flags & (syn | ack) == syn drop", "was waiting for rank", 4.0),
    ],
    ids=["refused", "half-open", "unreachable"],
)
def test_a_job_whose_hosts_cannot_connect_is_not_formed(pair, rule, text, start_s):
    here, there = pair.hosts
    with start(never_reached, 4, places=two_by_two(pair), start_s=start_s) as job:
        # The ranks there reach the launcher, but no rank here.
        pair.rule(there, here, f"tcp dport != {job.server.port} {rule}")
        outcomes = job.outcomes()
    for outcome in outcomes:
        assert isinstance(outcome.error, RendezvousError), outcome.trace
        assert text in str(outcome.error)
