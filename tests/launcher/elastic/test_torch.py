"""Elastic jobs of PyTorch, by Horovod's names."""

import re
from pathlib import Path

import pytest

from tests.kit.programs import run_cli

TRAINING = Path(__file__).with_name("torch_training.py")
# The third host leaves, and the fourth comes.
HOSTS = "echo 127.0.0.1; echo 127.0.0.2\n{}echo 127.0.0.3\n[ ! -e changed-6 ] || echo 127.0.0.4\n"


def train(folder, third_while, *faults):
    folder.mkdir()
    (folder / "hosts.sh").write_text(HOSTS.format(third_while))
    options = ("--min-np", 1, "--host-discovery-script", "sh hosts.sh", "--")
    done = run_cli("run", *options, TRAINING, *faults, "any:6:change", folder=folder)
    ended = re.findall(r"ended with (\d+): sizes (.*); weights (\w+)", done.stdout)
    assert len(ended) == 3 and len(set(ended)) == 1
    return ended[0][1:]


@pytest.mark.slow
def test_a_rank_that_is_killed_leaves_the_bits_of_one_that_leaves_as_planned(tmp_path):
    planned = train(tmp_path / "planned", "[ -e changed-3 ] || ", "any:3:change")
    killed = train(tmp_path / "killed", "", "2:3:kill")
    assert planned == killed
    assert planned[0].startswith("3,3,3,2,2,2,3")


def test_what_read_ahead_for_a_generation_ends_with_it(tmp_path):
    options = ["-np", "3", "--min-np", "1", "-H", "localhost:3", "--heartbeat-timeout", "60"]
    done = run_cli("run", *options, TRAINING, "readers", "1:4:kill", folder=tmp_path)
    # Torch's own readers find out after seconds that their rank was killed.
    assert done.stdout.count("0 readers are left here, 0 of worker 1") == 2
    ended = re.findall(r"ended with 2: sizes ([\d,]*); weights (\w+)", done.stdout)
    assert len(ended) == 2 and len(set(ended)) == 1
    assert ended[0][0].startswith("3,3,3,3,2,2")
