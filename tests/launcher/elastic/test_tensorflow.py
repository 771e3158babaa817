"""Elastic jobs of TensorFlow and Keras, by Horovod's names."""

import re
from pathlib import Path

import pytest

from tests.kit.programs import run_cli

TRAINING = Path(__file__).with_name("tensorflow_training.py")
# The second host is there until the file `changed` is, or from then on.
UNTIL = "echo 127.0.0.1\n[ -e changed ] || echo 127.0.0.2\n"
FROM = "echo 127.0.0.1\nif [ -e changed ]; then echo 127.0.0.2; fi\n"


def train(folder, *words):
    """The sizes in `fit` and in the loop with a tape of the rank that was there for longest, and
    the weights that all ranks agree on."""
    done = run_cli("run", *words, folder=folder, TF_CPP_MIN_LOG_LEVEL="3")
    ended = re.findall(r"ended with (\d+): fit (.*); tape (.*); weights (\w+)", done.stdout)
    assert len(ended) == int(ended[0][0])
    assert len({weights for *_, weights in ended}) == 1
    return max(ended, key=lambda line: len(line[1] + line[2]))[1:]


def test_the_others_go_on_without_ranks_that_are_killed(tmp_path):
    options = ("-np", 3, "--min-np", 1, "-H", "localhost:3")
    fit, tape, _ = train(tmp_path, *options, TRAINING, "both", "2:fit:3:kill", "0:tape:2:kill")
    assert fit == "3,3,3,2,2,2"
    assert tape == "2,2,1,1,1"


def under(folder, script, *words):
    (folder / "hosts.sh").write_text(script)
    options = ("--min-np", 1, "--host-discovery-script", "sh hosts.sh", "--")
    return train(folder, *options, TRAINING, *words)


@pytest.mark.slow
@pytest.mark.parametrize(("part", "sizes"), [("fit", "1,2,2,2,2,2,2"), ("tape", "1,2,2,2")])
def test_a_step_that_was_traced_on_one_rank_combines_gradients_on_two(tmp_path, part, sizes):
    ended = under(tmp_path, FROM, part, f"0:{part}:2:change")
    assert ended[["fit", "tape"].index(part)] == sizes


@pytest.mark.slow
@pytest.mark.parametrize("part", ["fit", "tape"])
def test_a_rank_that_leaves_as_planned_gives_the_bits_of_one_that_is_killed(tmp_path, part):
    planned = under(tmp_path, UNTIL, part, f"any:{part}:3:change")
    options = ("-np", 2, "--min-np", 1, "-H", "127.0.0.1,127.0.0.2")
    killed = train(tmp_path, *options, TRAINING, part, f"1:{part}:3:kill")
    assert killed[2] == planned[2]
