"""Random schedules of faults and newcomers in elastic jobs: none hangs, no sample is lost or
doubled, and the weights are those of the schedule as planned, to the last bit.

HVDTUNE_TEST_ELASTIC_SCHEDULES says how many are tried (make soak), HVDTUNE_TEST_ELASTIC_SEED where
to begin.
In every second the ranks have something for themselves. Every third is on hosts of its own, as
network namespaces, where these can be made: there ranks are cut off, too.
"""

import json
import os
import random
from contextlib import ExitStack, nullcontext
from dataclasses import asdict

import pytest

from tests.kit.programs import run_cli
from tests.launcher.elastic.test_job import TRAINING, ends
from tests.parallel import netns

_FIRST = int(os.environ.get("HVDTUNE_TEST_ELASTIC_SEED", "0"))
_COUNT = int(os.environ.get("HVDTUNE_TEST_ELASTIC_SCHEDULES", "4"))
_MOST_HOSTS = 5


@pytest.fixture(scope="module")
def network():
    """The launcher's host and those of ranks; None where there can be none."""
    with ExitStack() as stack:
        can = not netns.why_not()
        yield stack.enter_context(netns.network(_MOST_HOSTS + 1)) if can else None


def schedule(seed, *, can_cut):
    """The number of hosts at first, further options and the faults. A worker has none."""
    chance = random.Random(seed)
    ranks = chance.randint(2, 4)
    returns = chance.random() < 0.5
    failing = chance.sample(range(ranks), chance.randint(1, ranks - 1))
    kinds = ["kill", "stop", "raise"] + ["cut"] * 2 * can_cut
    faults = [f"{worker}:{chance.randint(1, 12)}:{chance.choice(kinds)}" for worker in failing]
    if returns and chance.random() < 0.5:  # who returns fails, too
        faults.append(f"{ranks}:{chance.randint(1, 5)}:kill")
    if chance.random() < 0.5:
        (*_, lasting) = sorted(set(range(ranks)) - set(failing))
        faults.append(f"{lasting}:{chance.randint(1, 12)}:new")
    return ranks, ["--blacklist-cooldown-range", 1, 2] * returns, faults


def alias(number):
    return f"127.0.0.{number + 1}"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(_FIRST, _FIRST + _COUNT))
def test_every_sample_is_trained_once_whatever_fails(tmp_path, network, seed):
    is_apart = network is not None and seed % 3 == 0
    ranks, options, faults = schedule(seed, can_cut=is_apart)
    lines = [f"echo {alias(n)}" for n in range(ranks)]
    (tmp_path / "hosts.sh").write_text("\n".join([*lines, f"[ ! -e more ] || echo {alias(ranks)}"]))
    words = ["run", "--min-np", 1, *options, "--heartbeat-timeout", 1]
    own = ["own"] * (seed % 2)
    words += ["--host-discovery-script", "sh hosts.sh", "--", TRAINING, 60, 2, *own, *faults]
    variables, place = {}, nullcontext()
    if is_apart:
        network.mend()
        here, *there = network.hosts
        hosts = {alias(n): asdict(host) for n, host in enumerate(there)}
        told = json.dumps({**hosts, "router": asdict(network.router)})
        variables = {"HVDTUNE_TEST_NETWORK": told, "HVDTUNE_ADDRESS": here.address}
        place = here.entered()
    with place:
        done = run_cli(*words, folder=tmp_path, **variables)
    ends(done)
