"""Random schedules of faults in elastic jobs: none hangs, and no sample is lost or doubled.

HVDTUNE_ELASTIC_SCHEDULES says how many are tried (make soak), HVDTUNE_ELASTIC_SEED where to begin.
"""

import os
import random

import pytest

from tests.launcher.elastic.test_job import ends, train

_FIRST = int(os.environ.get("HVDTUNE_ELASTIC_SEED", "0"))
_COUNT = int(os.environ.get("HVDTUNE_ELASTIC_SCHEDULES", "4"))


def schedule(seed):
    """The options of a job and its faults, of which at least one worker has none."""
    chance = random.Random(seed)
    ranks = chance.randint(2, 4)
    returns = chance.random() < 0.5
    failing = chance.sample(range(ranks), chance.randint(1, ranks - 1))
    faults = [
        f"{worker}:{chance.randint(1, 12)}:{chance.choice(['kill', 'stop', 'raise'])}"
        for worker in failing
    ]
    if returns and chance.random() < 0.5:  # who returns fails, too
        faults.append(f"{ranks}:{chance.randint(1, 5)}:kill")
    options = f"-np {ranks} --min-np 1 -H localhost:{ranks} --heartbeat-timeout 1"
    return options + " --blacklist-cooldown-range 1 2" * returns, faults


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(_FIRST, _FIRST + _COUNT))
def test_every_sample_is_trained_once_whatever_fails(tmp_path, seed):
    options, faults = schedule(seed)
    ends(train(tmp_path, options, 60, 2, *faults))
