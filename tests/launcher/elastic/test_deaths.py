"""Elastic jobs whose launcher or discovery script is killed.

HVDTUNE_TEST_ELASTIC_DEATHS says how many of each are killed (make soak), HVDTUNE_TEST_ELASTIC_SEED
where to begin; how long the ranks of a killed launcher lived on is printed.
"""

import json
import os
import random
import subprocess
import threading
import time

import msgspec
import psutil
import pytest

from hvdtune.launcher.elastic import journal
from hvdtune.launcher.elastic.journal import mark_of
from tests.kit.programs import environ, hvdtune
from tests.launcher.elastic.test_job import TRAINING, ends, run_cli, train

_FIRST = int(os.environ.get("HVDTUNE_TEST_ELASTIC_SEED", "0"))
_SEEDS = range(_FIRST, _FIRST + int(os.environ.get("HVDTUNE_TEST_ELASTIC_DEATHS", "1")))
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


@pytest.mark.parametrize("seed", _SEEDS)
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
    # A hidden one is still being written.
    wait_for(lambda: folder.is_dir() and any(folder.glob("[!.]*")), "the job has not begun")
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


def read_journal(folder):
    try:
        return json.loads((folder / "run" / "journal.json").read_text())
    except FileNotFoundError:
        return {"former": {"generation": -1}, "commits": 0}


def test_another_launcher_takes_over_what_a_killed_one_knew_of_its_job(tmp_path):
    options = "-np 3 --min-np 1 -H localhost:3 -o run"
    # 2 steps of 3 ranks and 97 of 2.
    words = [400, 1, "to-disk", "own", "2:3:leave", "0:99:hold", "1:99:hold"]
    launcher = subprocess.Popen(
        hvdtune("run", *options.split(), TRAINING, *words),
        cwd=tmp_path,
        env=environ(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )

    def has_committed_twice_formed():
        journal = read_journal(tmp_path)
        return journal["former"]["generation"] == 1 and journal["commits"] > 3

    wait_for(has_committed_twice_formed, "the job has not gone on without worker 2")
    launcher.kill()
    launcher.wait()
    done = train(tmp_path, f"{options} --resume", *words)
    # Slot 2 has failed, and the numbers go on.
    assert "generation 2 has 2 ranks" in done.stderr
    assert "Training continues after" in done.stderr
    assert ends(done)[0].startswith("3,3,2,2,")
    known = json.loads((tmp_path / "run" / "membership.json").read_text())["otherData"]
    stays = known["hvdtune_elastic"]["stays"]
    assert [(stay["worker"], stay["generation"], stay["slot"]) for stay in stays] == [
        *[(0, 0, 0), (1, 0, 1), (2, 0, 2), (0, 1, 0), (1, 1, 1), (3, 2, 0), (4, 2, 1)]
    ]
    began = [stay["began_s"] for stay in stays]
    assert began == sorted(began) and all(stay["ended_s"] >= stay["began_s"] for stay in stays)
    again = train(tmp_path, f"{options} --resume", *words, codes=(2,))
    assert "the job of run has ended, with exit code 0" in again.stderr


def test_a_training_that_kept_nothing_on_the_disk_is_said_to_begin_anew(tmp_path):
    options = "-np 1 --min-np 1 -H localhost:2 -o run"
    words = [8, 1, "0:2:raise"]
    train(tmp_path, options, *words, codes=(1,))
    done = train(tmp_path, f"{options} --resume", *words)
    assert "Training restarts from the beginning: none of the 1 commit of the former" in done.stderr
    assert ends(done)[0] == "1,1,1,1"


def test_a_folder_without_a_job_is_not_taken_over(tmp_path):
    done = train(tmp_path, "-np 1 --min-np 1 -o run --resume", 8, 1, codes=(2,))
    assert "--resume: there is no run/journal.json" in done.stderr
    assert not (tmp_path / "run").exists()


def test_a_process_is_known_by_more_than_its_number(tmp_path):
    one = subprocess.Popen(["sleep", "600"])
    mark = mark_of(one.pid)
    assert mark is not None and mark_of(one.pid) == mark
    journal.await_end([msgspec.structs.replace(mark, started=mark.started + 1)])  # is another
    waiting = threading.Thread(target=journal.await_end, args=([mark],))
    waiting.start()
    assert waiting.is_alive()
    one.kill()
    one.wait()
    waiting.join()
    assert mark_of(one.pid) is None


@pytest.mark.parametrize("seed", _SEEDS)
def test_a_discovery_script_that_is_killed_changes_nothing(tmp_path, seed):
    lines = ["echo 127.0.0.1", "echo 127.0.0.2"]
    # At any place: with no host said, one of two, or both.
    lines.insert(random.Random(seed).randint(0, 2), "[ ! -e more ] || { touch seen; kill -9 $$; }")
    (tmp_path / "hosts.sh").write_text("\n".join(lines))
    words = ("run", "--min-np", 1, "--host-discovery-script", "sh hosts.sh", "--", TRAINING, 24, 1)
    done = run_cli(*words, "0:2:new", "0:3:remove", "1:3:kill", folder=tmp_path)
    assert ends(done)[0] == "2,2,1,1,1,1,1,1,1,1"
    assert "--host-discovery-script sh hosts.sh failed with exit code" in done.stderr
