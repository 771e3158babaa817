"""Elastic jobs of real processes."""

import json
import re
import sys
from pathlib import Path

import pytest

from hvdtune.launcher.elastic.discovery import FixedHosts
from hvdtune.launcher.elastic.membership import ElasticLimits
from hvdtune.launcher.elastic.workers import ElasticWorkers
from hvdtune.launcher.hosts import Host
from hvdtune.launcher.job import Job
from hvdtune.launcher.ranks import JobOptions, JobPlan
from tests.kit.programs import environ, run_cli
from tests.launcher.elastic.replay import replay

TRAINING = Path(__file__).with_name("training.py")
ONCE = "every sample once"
IMPORTS = {"PYTHONPATH": environ()["PYTHONPATH"]}


def train(tmp_path, options, *words, codes=(0,)):
    return run_cli("run", *options.split(), TRAINING, *words, folder=tmp_path, codes=codes)


def ends(done):
    """The sizes over time and the weights, which all ranks that are left must agree on, and which
    must be those of the same changes as planned, to the last bit."""
    lines = re.findall(
        r"ended with (\d+): (.*); sizes (.*); dealt (.*); weights (\w+)", done.stdout
    )
    assert lines, done.stdout + done.stderr
    assert {account for _, account, *_ in lines} == {ONCE}
    assert len({line[2:] for line in lines}) == 1
    size, _, sizes, dealt, weights = lines[0]
    assert len(lines) == int(size)
    samples = int(done.args[done.args.index(str(TRAINING)) + 1])
    planned = replay(samples, *([int(n) for n in text.split(",")] for text in (sizes, dealt)))
    assert planned.tobytes().hex() == weights
    return sizes, weights


@pytest.mark.parametrize("fault", ["kill", "stop", "raise"])
def test_the_others_go_on_without_a_rank_that_fails(tmp_path, fault):
    options = "-np 3 --min-np 1 -H localhost:3 --heartbeat-timeout 1"
    done = train(tmp_path, options, 24, 1, f"1:3:{fault}")
    assert ends(done)[0] == "3,3,2,2,2"
    places = re.findall(r"starts as \[(.*)\]", done.stdout)
    assert sorted(places) == [f"{rank}, 3, {rank}, 3, 0, 1" for rank in range(3)]
    without = ", without worker 1 (slot 1 of localhost)\n"
    assert f"generation 1 has 2 ranks on 1 host{without}" in done.stderr
    (how,) = set(re.findall(r"worker 1 \(slot 1 of localhost\) (.*)", done.stderr))
    if fault == "raise":  # where its interpreter takes long to end, it is ended
        assert how.startswith("raised ValueError: as told")
    else:
        assert how == {
            "kill": "was killed by SIGKILL",
            "stop": "has not answered for 1 s (--heartbeat-timeout): it was ended",
        }.get(fault)


def test_one_that_stops_while_another_leaves_is_left_behind_too(tmp_path):
    options = "-np 3 --min-np 1 -H localhost:3 --heartbeat-timeout 1"
    done = train(tmp_path, options, 24, 1, "1:3:raise", "2:3:stop")
    assert "worker 1 (slot 1 of localhost) raised ValueError: as told" in done.stderr
    sizes = ends(done)[0]
    assert sizes.startswith("3,3,") and sizes.endswith(",1")


def test_rank_0_can_be_lost(tmp_path):
    done = train(tmp_path, "-np 2 --min-np 1 -H localhost:2", 12, 1, "0:2:kill")
    assert ends(done)[0] == "2,1,1,1,1"


def test_a_failed_slot_is_used_again_after_its_cooldown(tmp_path):
    options = "-np 2 --min-np 2 -H localhost:2 --blacklist-cooldown-range 1 5"
    done = train(tmp_path, options, 12, 2, "1:2:kill")
    assert set(ends(done)[0].split(",")) == {"2"}
    assert "worker 1 (slot 1 of localhost) was killed by SIGKILL" in done.stderr


@pytest.mark.slow
def test_a_host_that_goes_as_planned_leaves_the_bits_of_one_that_fails(tmp_path):
    (tmp_path / "hosts.sh").write_text(
        "echo 127.0.0.1\nif [ -e gone ]; then touch seen; else echo 127.0.0.2:1; fi\n"
    )
    options = "--min-np 1 --host-discovery-script"
    words = ("run", *options.split(), "sh hosts.sh", "--", TRAINING, 4000, 1)
    planned = run_cli(*words, "0:3:remove", folder=tmp_path)
    sizes, weights = ends_of_one(planned)
    failed = train(
        tmp_path,
        "-np 2 --min-np 1 -H 127.0.0.1,127.0.0.2",
        4000,
        1,
        f"1:{sizes.count('2') + 1}:kill",
    )
    assert ends(failed) == (sizes, weights)


GROWING = "echo {}\nif [ -e more ]; then echo {}:1; fi\n"


@pytest.mark.parametrize(
    ("more", "fault", "sizes"),
    [("", "grow", "1,1,2,2,2,2,2"), ("-np 1", "news", "1,1,1,2,2,2,2,2")],
)
def test_a_host_that_is_discovered_later_joins(tmp_path, more, fault, sizes):
    (tmp_path / "hosts.sh").write_text(GROWING.format("localhost", "127.0.0.2"))
    options = f"run {more} --min-np 1 --host-discovery-script"
    words = (*options.split(), "sh hosts.sh", "--", TRAINING, 24, 1)
    done = run_cli(*words, f"0:3:{fault}", folder=tmp_path)
    assert ends(done)[0] == sizes
    places = re.findall(r"starts as \[(.*)\]", done.stdout)  # before `init`
    assert places == ["0, 1, 0, 1, 0, 1", "1, 2, 0, 1, 1, 2"]
    assert "generation 1 has 2 ranks on 2 hosts" in done.stderr


def test_rank_0_may_ask_for_another_generation(tmp_path):
    done = train(tmp_path, "-np 2 --min-np 1 -H localhost:2", 12, 1, "0:2:ask", "1:2:ask")
    assert ends(done)[0] == "2,2,2"
    assert done.stderr.count("generation ") == 2


def test_ranks_of_a_host_that_is_exchanged_hand_the_training_over(tmp_path):
    (tmp_path / "hosts.sh").write_text(
        "if [ -e more ]; then echo 127.0.0.2; else echo 127.0.0.1; fi"
    )
    words = ("run", "--min-np", 1, "--host-discovery-script", "sh hosts.sh", "--")
    done = run_cli(*words, TRAINING, 4000, 1, "0:3:grow", folder=tmp_path)
    sizes = ends(done)[0].split(",")
    assert sizes[:3] == ["1", "1", "2"] and sizes[-1] == "1"
    assert "1 rank on hosts that are no longer listed will stay until at least 1" in done.stderr


def ends_of_one(done):
    sizes, weights = ends(done)
    assert {*sizes.split(",")} == {"1", "2"}
    return sizes, weights


@pytest.mark.parametrize("own", [(), ("own",)])
def test_a_job_that_dies_goes_on_from_its_commit_on_the_disk(tmp_path, own):
    options = "-np 2 --min-np 1 -H localhost:2"
    words = (24, 1, "to-disk", *own)
    died = train(tmp_path, options, *words, "0:4:die", "1:4:kill", codes=(137,))
    assert "no rank is left that held the state" in died.stderr
    done = train(tmp_path, "-np 3 --min-np 1 -H localhost:3", *words)
    assert "resumed after 3 commits" in done.stdout
    assert ends(done)[0] == "2,2,2,3,3"


def test_too_few_ranks_end_the_job_with_a_sentence(tmp_path):
    done = train(tmp_path, "-np 2 --min-np 2 -H localhost:2", 12, 1, "1:2:leave", codes=(1,))
    assert "1 rank of at least 2 is left, and no slot is free for another rank" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("fault", "code"), [("raise", 1), ("kill", 137), ("stop", 1)])
def test_a_rank_that_fails_after_the_training_makes_the_job_fail(tmp_path, fault, code):
    options = "-np 2 --min-np 1 -H localhost:2"
    done = train(tmp_path, options, 12, 1, f"0:0:{fault}", codes=(code,))
    (error,) = re.findall("error: (.*)", done.stderr)
    assert error.startswith("worker 0 (slot 0 of localhost) ")
    assert error.endswith(": the training is over, so the rank is not replaced")
    assert "ended with 2: every sample once" in done.stdout


def test_each_reset_says_its_reason(tmp_path):
    options = "-np 2 --min-np 1 -H localhost:2 --reset-limit 2"
    words = ("1:2:again", "1:3:again", "1:4:again")
    done = train(tmp_path, options, 24, 1, *words, codes=(1,))
    reason = ", as worker 1 (slot 1 of localhost) raised HorovodInternalError: as told"
    for generation in (1, 2):
        assert f"generation {generation} has 2 ranks on 1 host{reason}\n" in done.stderr
    assert f"reached --reset-limit (2){reason}\n" in done.stderr


def test_the_reset_limit_ends_the_job_with_a_sentence(tmp_path):
    options = "-np 3 --min-np 1 -H localhost:3 --reset-limit 0"
    done = train(tmp_path, options, 24, 1, "1:2:leave", codes=(1,))
    assert "reached --reset-limit (0)" in done.stderr


def elastic_workers(command, options, limits, hosts, say=lambda sentence: None):
    plan = JobPlan(command, (), "training.py")
    return ElasticWorkers(plan, {}, options, limits, hosts, say)


def test_a_generation_that_fails_between_two_looks_of_the_launcher_has_formed(tmp_path):
    class LateHosts(FixedHosts):
        """Keeps the launcher from looking until worker 1 has trained and left."""

        def take_remark(self) -> str:
            if workers._channel is not None:
                workers.processes._numbered[1].wait(60)
            return ""

    command = (sys.executable, str(TRAINING), "24", "1", "1:2:leave")
    limits = ElasticLimits(min_ranks=1, max_ranks=2, reset_limit=0, hosts_are_fixed=True)
    hosts = LateHosts((Host("localhost", 2),))
    workers = elastic_workers(command, JobOptions(environ=IMPORTS), limits, hosts)
    with Job(workers, 3.0) as job:
        report = job.wait()
    assert "reached --reset-limit (0)" in report.reason


def test_a_host_that_cannot_reach_the_launcher_is_left_out():
    command = (sys.executable, str(TRAINING), "4", "1")
    hosts = FixedHosts((Host("localhost", 1), Host("192.0.2.1", 1)))
    limits = ElasticLimits(min_ranks=1, max_ranks=2)
    options = JobOptions(environ={**IMPORTS, "HVDTUNE_ADDRESS": "127.0.0.1"})
    said = []
    with Job(elastic_workers(command, options, limits, hosts, said.append), 3.0) as job:
        report = job.wait()
    assert report.returncode == 0
    (left_out,) = (sentence for sentence in said if "192.0.2.1" in sentence)
    assert "is not used: 127.0.0.1 is this host's loopback" in left_out


@pytest.mark.parametrize("fault", ["kill", "stop"])
def test_a_job_under_faults_ends_with_an_account(tmp_path, fault):
    options = f"chaos --{fault}-every 0.1s -np 2 --heartbeat-timeout 1".split()
    waiting = ("0:5:grow", "1:5:grow")  # until a fault ends it
    done = run_cli(*options, "-o", "run", TRAINING, 40, 1, *waiting, folder=tmp_path)
    assert ends(done)[0].startswith("2,2,2,2,")
    assert re.search(rf"worker \d \(slot \d of localhost\) is {fault}\w+ on purpose", done.stderr)
    assert re.search(r"reset.? cost .*: detection .*, agreement .*, mesh", done.stderr)
    (goodput,) = re.findall(r"samples in .* per second: goodput [\d.]+%", done.stderr)
    known = json.loads((tmp_path / "run" / "membership.json").read_text())["otherData"]
    assert known["hvdtune_elastic"]["sentences"][1].endswith(goodput)
    assert {stay["generation"] for stay in known["hvdtune_elastic"]["stays"]} >= {0, 1}


def test_chaos_that_struck_nobody_says_so(tmp_path):
    done = run_cli("chaos", "--kill-every", "1h", "-np", 1, TRAINING, 4, 1, folder=tmp_path)
    assert "no rank was killed or stopped, so this run does not test the script" in done.stderr


def test_chaos_without_faults_is_refused(tmp_path):
    done = run_cli("chaos", TRAINING, folder=tmp_path, codes=(2,))
    assert "set --kill-every or --stop-every" in done.stderr


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ("--max-np 2", "--max-np needs --min-np"),
        ("--min-np 2 -np 1", "--min-np 2 is more than -np 1"),
        ("--min-np 1 -np 3 --max-np 2", "-np 3 is more than --max-np 2"),
        ("--min-np 2 -H localhost:1", "--min-np 2 is more than the hosts' slots, 1"),
        ("--min-np 1 --trials 2 --storage sqlite:///s.db", "--storage cannot be combined"),
        (
            "--min-np 1 --trials 2 --objective exposed_communication",
            "needs a timeline of each trial",
        ),
        ("--min-np 1 --trials 2 --knobs script.width", "unknown knob script.width"),
        ("--min-np 1 --json", "--json needs --trials"),
        ("--min-np 1 --mpi", "--mpi cannot be combined with --min-np"),
        ("--min-np 1 --blacklist-cooldown-range 5 1", "the first time exceeds the maximum"),
        ("--host-discovery-script true -H a", "not both"),
        ("--min-np 1 --host-discovery-script false", "failed with exit code 1"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(tmp_path, options, fault, capfd, monkeypatch):
    from hvdtune.cli import main

    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(["run", *options.split(), sys.executable])
    assert ended.value.code in (1, 2)
    assert fault in capfd.readouterr().err
