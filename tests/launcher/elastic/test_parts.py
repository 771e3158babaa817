"""What ranks have for themselves is not lost with them, at whatever place they are killed.

HVDTUNE_TEST_ELASTIC_KILLS says how many kills are tried (make soak), HVDTUNE_TEST_ELASTIC_SEED
where to begin.
"""

import os
import re
from pathlib import Path

import pytest

from tests.kit.programs import run_cli
from tests.launcher.elastic.test_job import ends, train

TRAINING = Path(__file__).with_name("own_training.py")
_PER_JOB = 10
_KILLS = int(os.environ.get("HVDTUNE_TEST_ELASTIC_KILLS", "4"))
_FIRST = int(os.environ.get("HVDTUNE_TEST_ELASTIC_SEED", "0"))


@pytest.mark.parametrize("seed", range(_FIRST, _FIRST + -(-_KILLS // _PER_JOB)))
def test_a_rank_is_killed_at_any_place_and_nothing_is_lost(tmp_path, seed):
    kills = min(_KILLS, _PER_JOB)
    options = ["-np", 3, "--min-np", 1, "-H", "localhost:3", "--blacklist-cooldown-range", 1, 1]
    options += ["--heartbeat-timeout", 30]  # a rank that waits for a processor is not lost
    done = run_cli("run", *options, TRAINING, kills, seed, 1, folder=tmp_path)
    ended = re.findall(r"ended with (\d): (.*): \d+ of", done.stdout)
    assert ended and {account for _, account in ended} == {"all counted once"}, done.stdout
    assert done.stdout.count("is killed at") == done.stderr.count("was killed by") == kills
    print(f"{done.stdout.count('rank 0 is killed at')} of {kills} were rank 0's")


@pytest.mark.parametrize("hosts", ["localhost:3", "127.0.0.1,127.0.0.2,127.0.0.3"])
def test_what_a_killed_rank_had_for_itself_is_on_another(tmp_path, hosts):
    done = train(tmp_path, f"-np 3 --min-np 1 -H {hosts}", 24, 1, "own", "1:3:kill")
    assert ends(done)[0] == "3,3,2,2,2"


def test_without_copies_it_is_lost_with_a_sentence(tmp_path):
    options = "-np 3 --min-np 1 -H localhost:3"
    done = train(tmp_path, options, 24, 1, "own", "no-copies", "1:3:kill", codes=(1, 137))
    assert "The per-rank state of rank 1 of 3 (commit 2) is lost" in done.stderr


def test_a_thousand_commits_take_no_more_memory_than_a_hundred(tmp_path):
    program = Path(__file__).with_name("commit_memory.py")
    options = ["-np", "2", "--min-np", "2", "-H", "localhost:2"]
    done = run_cli("run", *options, program, 1000, 100, folder=tmp_path)
    grown = [float(found) for found in re.findall(r"grown by (-?[\d.]+) of 900", done.stdout)]
    assert len(grown) == 2 and max(grown) < 9  # values: a hundredth of what was committed
