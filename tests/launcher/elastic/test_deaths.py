"""Elastic jobs whose launcher or discovery script is killed.

HVDTUNE_ELASTIC_LAUNCHERS says how many launchers are killed (make soak); how long their ranks lived
on is printed.
"""

import os
import random
import subprocess
import time

import psutil
import pytest

from tests.kit.programs import environ, hvdtune
from tests.launcher.elastic.test_job import TRAINING, ends, run_cli, train

_LAUNCHERS = int(os.environ.get("HVDTUNE_ELASTIC_LAUNCHERS", "1"))
_MOST_S = 60.0


def lives(process):
    try:
        return process.status() != psutil.STATUS_ZOMBIE  # whom nobody has asked for yet
    except psutil.NoSuchProcess:
        return False


def wait_for(condition, why):
    deadline = time.monotonic() + _MOST_S
    while not condition():
        assert time.monotonic() < deadline, why
        time.sleep(0.005)


@pytest.mark.parametrize("seed", range(_LAUNCHERS))
def test_ranks_end_with_a_killed_launcher_and_the_same_command_goes_on(tmp_path, seed):
    options = "-np 2 --min-np 1 -H localhost:2"
    words = [
        "run",
        *options.split(),
        TRAINING,
        400,
        1,
        "to-disk",
        "own",
        "0:100:grow",
        "1:100:grow",
    ]
    launcher = subprocess.Popen(
        hvdtune(*words),
        cwd=tmp_path,
        env=environ(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    folder = tmp_path / "commits"
    # From here on the ranks commit without end.
    wait_for(lambda: folder.is_dir() and any(folder.iterdir()), "the job has not begun")
    time.sleep(random.Random(seed).random() / 10)  # any instant, of training or of waiting
    ranks = psutil.Process(launcher.pid).children(recursive=True)
    assert len(ranks) >= 2
    launcher.kill()
    killed_s = time.monotonic()
    launcher.wait()
    wait_for(lambda: not any(map(lives, ranks)), "a rank lives on")
    print(f"the {len(ranks)} processes of the ranks ended in {time.monotonic() - killed_s:.3f} s")
    done = train(tmp_path, options, 400, 1, "to-disk", "own")
    assert "resumed after" in done.stdout
    ends(done)


def test_a_discovery_script_that_is_killed_changes_nothing(tmp_path):
    (tmp_path / "hosts.sh").write_text(
        "[ ! -e more ] || { touch seen; kill -9 $$; }\necho 127.0.0.1; echo 127.0.0.2\n"
    )
    words = ("run", "--min-np", 1, "--host-discovery-script", "sh hosts.sh", "--", TRAINING, 24, 1)
    done = run_cli(*words, "0:2:new", "0:3:remove", "1:3:kill", folder=tmp_path)
    assert ends(done)[0] == "2,2,1,1,1,1,1,1,1,1"
    assert "--host-discovery-script sh hosts.sh failed with exit code" in done.stderr
