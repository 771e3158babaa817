"""Jobs that no launcher of ours has started: by the variables of each, and by real ones."""

import os
import re
import shlex
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from hvdtune.core.job.job_file import JobFile
from tests.parallel import netns, slurm
from tests.parallel.told_processes import KEY, check, said_by, said_in


def srun(rank, size, job="42", step="0"):
    return {
        "SLURM_JOB_ID": job,
        "SLURM_STEP_ID": step,
        "SLURM_PROCID": str(rank),
        "SLURM_STEP_NUM_TASKS": str(size),
        "SLURM_LOCALID": str(rank),
        "SLURM_NODEID": "0",
        "SLURM_STEP_TASKS_PER_NODE": str(size),
        "SLURM_STEP_NODELIST": "localhost",
    }


def pmi(rank, size):
    return {
        "PMI_RANK": str(rank),
        "PMI_SIZE": str(size),
        "MPI_LOCALRANKID": str(rank),
        "MPI_LOCALNRANKS": str(size),
    }


def torchrun(rank, size):
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_RANK": str(rank),
        "LOCAL_WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29500",
        "TORCHELASTIC_RUN_ID": "none",
    }


@pytest.mark.parametrize(
    ("variables", "way"),
    [
        (srun, "port"),
        (pmi, "file"),
        (torchrun, "file"),
        pytest.param(srun, "file", marks=pytest.mark.slow),  # as the others are
        pytest.param(pmi, "port", marks=pytest.mark.slow),
        pytest.param(torchrun, "port", marks=pytest.mark.slow),
    ],
    ids=lambda made: made if isinstance(made, str) else made.__name__,
)
def test_processes_meet_by_their_launchers_variables_alone(processes, tmp_path, variables, way):
    if way == "port":
        processes.environ |= {"HVDTUNE_KEY": KEY}
    started = [processes.start(variables(rank, 2)) for rank in range(2)]
    check([said_by(process) for process in started])
    assert list(tmp_path.glob("*.json")) == []


def test_a_file_of_a_dead_job_is_not_trusted(processes, tmp_path):
    with JobFile(tmp_path, "slurm/42/0").offered("127.0.0.1:1", bytes(32)):
        started = [processes.start(srun(rank, 2)) for rank in (1, 0)]
        check([said_by(process) for process in reversed(started)])


@pytest.mark.parametrize(
    "key",
    [pytest.param({}, marks=pytest.mark.slow), {"HVDTUNE_KEY": KEY}],  # the one as the other
    ids=["file", "port"],
)
def test_steps_of_one_allocation_do_not_meet_each_other(processes, key):
    processes.environ |= key
    steps = [
        [processes.start(srun(rank, 2, step=step)) for rank in range(2)] for step in ("0", "1")
    ]
    names = set()
    for started in steps:
        said = [said_by(process) for process in started]
        check(said)
        names.add(said[0][0][7])
    assert len(names) == 2


def of_its_own(processes):
    """The name of a job, by which no other test's ranks meet at its port."""
    return {"HVDTUNE_JOB_ID": processes.environ["HVDTUNE_SHARED_FOLDER"]}


ALONE = "from hvdtune.core.rank import runtime; runtime.init(); print(runtime.size())"


@pytest.mark.parametrize(
    "changes",
    [
        {"HVDTUNE_STARTED_BY": "none"},
        {"SLURM_STEP_NUM_TASKS": "1"},
        {"SLURM_STEP_ID": "4294967291"},
    ],
)
def test_a_process_that_is_alone_trains_alone(processes, changes):
    process = processes.start(srun(0, 2) | changes, ALONE)
    assert process.communicate(timeout=60)[0] == "1\n"


@pytest.mark.parametrize(
    ("ranks", "key"),
    [
        ((0, 0), {}),
        ((0, 0), {"HVDTUNE_KEY": KEY}),
        ((0, 1, 1), {"HVDTUNE_KEY": KEY}),
        pytest.param((0, 1, 1), {}, marks=pytest.mark.slow),  # as by port
    ],
    ids=["rank-0-by-file", "rank-0-by-port", "rank-1-by-port", "rank-1-by-file"],
)
def test_two_processes_that_were_told_the_same_rank_are_refused_by_all(processes, ranks, key):
    processes.environ |= key | of_its_own(processes) | {"HVDTUNE_START_TIMEOUT_S": "100"}
    size = len(ranks)
    started = [processes.start(torchrun(rank, size), ALONE) for rank in ranks]
    twins = sorted(process.pid for process in started[-2:])
    for rank, process in zip(ranks, started, strict=True):
        _, error = process.communicate(timeout=90)
        line = error.splitlines()[-1]
        assert line.startswith("hvdtune.errors.RendezvousError: ") and process.returncode == 1
        assert f"two processes have rank {ranks[-1]}: " in line
        assert sorted(map(int, re.findall(r"pid (\d+) on \S", line))) == twins
        assert f"torchrun set rank {rank} of {size} by RANK and WORLD_SIZE" in line


def test_a_rank_that_was_told_another_number_of_ranks_is_refused_by_all(processes):
    processes.environ["HVDTUNE_START_TIMEOUT_S"] = "100"
    started = [processes.start(torchrun(rank, 2 + rank), ALONE) for rank in range(2)]
    for process in started:
        line = process.communicate(timeout=90)[1].splitlines()[-1]
        told = "expects a job of 3 ranks, rank 0 one of 2; set the same number on all ranks"
        assert f"RendezvousError: rank 1 (pid {started[1].pid} on " in line and told in line


def test_a_local_rank_that_two_processes_of_a_host_were_told_is_told_again(processes):
    started = [
        processes.start(torchrun(rank, 2) | {"LOCAL_RANK": "0", "HVDTUNE_CYCLE_TIME": "3"}, ALONE)
        for rank in range(2)
    ]
    said = [process.communicate(timeout=90) for process in started]
    assert [out for out, _ in said] == ["2\n", "2\n"]
    about = (
        "torchrun reports local rank 0 for this process, but hvd.local_rank() returns 1, counted"
    )
    assert [about in error for _, error in said] == [False, True]
    assert ["Did you mean HVDTUNE_CYCLE_TIME_MS?" in error for _, error in said] == [True, False]


@pytest.mark.slow  # waits for the start timeout
@pytest.mark.parametrize(
    ("rank", "key", "sentence"),
    [
        (0, {}, ".json. All hosts must share its folder. To run this process alone"),
        (1, {}, "No file of rank 0 at "),
        (0, {"HVDTUNE_KEY": KEY}, ". Rank 0 listens on 127.0.0.1; the others connect to port "),
        (1, {"HVDTUNE_KEY": KEY}, "To use another host or port, set HVDTUNE_RENDEZVOUS_HOST or"),
    ],
)
def test_a_rank_whose_peers_do_not_come_says_who_is_missing_and_what_to_do(
    processes, rank, key, sentence
):
    processes.environ |= key | of_its_own(processes) | {"HVDTUNE_START_TIMEOUT_S": "1"}
    process = processes.start(srun(rank, 2), ALONE)
    _, error = process.communicate(timeout=100)
    line = error.splitlines()[-1]
    assert line.startswith("hvdtune.errors.RendezvousError: ")
    assert sentence in line and f"srun set rank {rank} of 2 by" in line
    assert "To run this process alone, set HVDTUNE_STARTED_BY=none" in line


@pytest.mark.slow  # waits for the start timeout
def test_another_key_leads_to_no_job(processes):
    processes.environ |= of_its_own(processes) | {"HVDTUNE_START_TIMEOUT_S": "2"}
    keys = ({"HVDTUNE_KEY": KEY}, {"HVDTUNE_KEY": "11" * 32})
    started = [processes.start(srun(rank, 2) | key, ALONE) for rank, key in enumerate(keys)]
    errors = [process.communicate(timeout=100)[1] for process in started]
    assert "no message from rank 1 of 2" in errors[0]
    assert "the rendezvous server" in errors[1]
    assert "a process on 127.0.0.1 connected with a different key" in errors[0]
    assert "has a different key than this process" in errors[1]
    assert all("must name the same key on all ranks, and" in error for error in errors)


@pytest.mark.slow  # imports torch in torchrun
def test_a_real_torchrun(processes, train):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    done = subprocess.run(
        [*command, "--nproc-per-node", "3", train],
        env=processes.environ,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    check(said_in(done.stdout))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    if reason := slurm.why_not():
        pytest.skip(reason)
    with slurm.cluster(tmp_path_factory.mktemp("slurm")) as made:
        yield made


@pytest.mark.slow  # starts the daemons of Slurm
@pytest.mark.parametrize("key", [{}, {"HVDTUNE_KEY": KEY}], ids=["file", "port"])
@pytest.mark.parametrize("mpi", ["none", "pmi2", "pmix"])
def test_a_real_srun(cluster, processes, train, key, mpi):
    command = ["srun", "-n", "4", f"--mpi={mpi}", sys.executable, train]
    done = cluster.run(*command, env=processes.environ | key)
    if "Invalid MPI type" in done.stderr:
        # That of Debian for PMIx loads libpmix.so, of libpmix-dev.
        pytest.skip(f"Slurm has no {mpi} here")
    assert done.returncode == 0, done.stderr
    check(said_in(done.stdout))


@pytest.mark.slow  # starts the daemons of Slurm
def test_two_steps_of_a_real_batch_script_and_the_script_itself(
    cluster, processes, train, tmp_path
):
    step = f"srun -n 2 --exact {sys.executable} {train}"
    batch = tmp_path / "batch.sh"
    batch.write_text(
        f"#!/bin/sh\n{step} > first &\n{step} > second &\nwait\n"
        f"{sys.executable} -c '{ALONE}' > alone\n"
    )
    done = cluster.run(
        *("sbatch", "--wait", "-n", "4", "-D", str(tmp_path), str(batch)), env=processes.environ
    )
    assert done.returncode == 0, done.stderr + "".join(
        path.read_text() for path in tmp_path.glob("slurm-*.out")
    )
    assert (tmp_path / "alone").read_text() == "1\n"
    names = set()
    for step in ("first", "second"):
        said = said_in((tmp_path / step).read_text())
        check(said)
        names.add(said[0][0][7])
    assert len(names) == 2


LOSES = """
import os, signal, sys, time
from hvdtune.core.rank import runtime
from hvdtune.core.rank.collectives import barrier
from hvdtune.errors import RankLostError

runtime.init()
if runtime.rank() == 1:
    os.kill(os.getpid(), signal.SIGKILL)
try:
    while True:
        barrier()
except RankLostError as error:
    print("lost", error.rank, flush=True)
"""


@pytest.mark.slow  # starts the daemons of Slurm
def test_a_task_that_is_killed_is_named_by_the_others(cluster, processes):
    command = ["srun", "-n", "3", "--kill-on-bad-exit=0", sys.executable, "-c", LOSES]
    done = cluster.run(*command, env=processes.environ)
    assert done.stdout == "lost 1\n" * 2


@pytest.fixture(scope="module")
def three_nodes(tmp_path_factory):
    if reason := slurm.why_not() or netns.why_not():
        pytest.skip(reason)
    with (
        netns.network(3) as net,
        slurm.cluster(tmp_path_factory.mktemp("slurm"), net.hosts) as made,
    ):
        yield made


@pytest.mark.slow  # starts the daemons of Slurm
@pytest.mark.parametrize("mpi", ["none", "pmi2"])
def test_a_real_srun_on_three_nodes(three_nodes, processes, train, mpi):
    command = ["srun", "-N", "3", "--ntasks-per-node=2", f"--mpi={mpi}", sys.executable, train]
    done = three_nodes.run(*command, env=processes.environ)
    assert done.returncode == 0, done.stderr
    check(said_in(done.stdout), [2, 2, 2])


_ON_EACH = ["srun", "-N", "3", "--ntasks-per-node=1", sys.executable, "-m", "hvdtune", "run"]


@pytest.mark.slow  # starts the daemons of Slurm
def test_one_hvdtune_run_on_each_of_three_nodes(three_nodes, processes, train):
    done = three_nodes.run(*_ON_EACH, "-np", "6", train, env=processes.environ)
    assert done.returncode == 0, done.stderr
    check(said_in(done.stdout), [2, 2, 2])
    lines = [line for line in done.stdout.splitlines() if "said" in line]
    assert sorted(line[:3] for line in lines) == [f"[{rank}]" for rank in range(6)]
    assert "srun started hvdtune on 3 nodes: host-0:2," in done.stderr


@pytest.mark.slow  # starts the daemons of Slurm
def test_a_rank_that_fails_on_one_of_three_nodes_is_the_code_of_all(
    three_nodes, processes, tmp_path
):
    script = tmp_path / "fails.py"
    script.write_text(
        "import sys\nfrom hvdtune.core.rank import runtime\nruntime.init()\n"
        "sys.exit(9 * (runtime.rank() == 2))\n"
    )
    done = three_nodes.run(*_ON_EACH, "-np", "3", str(script), env=processes.environ)
    assert done.returncode == 9
    assert "rank 2 exited with code 9" in done.stderr


FOREVER = """
import time
from pathlib import Path
from hvdtune.core.rank import runtime

runtime.init()
Path("formed").touch()
time.sleep(1000)
"""


@pytest.mark.slow  # starts the daemons of Slurm
@pytest.mark.parametrize("way", ["one-task-for-each-rank", "one-hvdtune-run-on-each-node"])
def test_scancel_leaves_no_process(three_nodes, processes, tmp_path, way):
    script, batch = tmp_path / "forever.py", tmp_path / "batch.sh"
    script.write_text(FOREVER)
    words = ["hvdtune", "run", "-np", "3"] if way == "one-hvdtune-run-on-each-node" else []
    step = shlex.join([sys.executable, *(["-m", *words] if words else []), str(script)])
    batch.write_text(f"#!/bin/sh\nsrun -N 3 --ntasks-per-node=1 {step}\n")
    sent = three_nodes.run(
        *("sbatch", "--parsable", "-N", "3", "-n", "3", "-D", str(tmp_path), str(batch)),
        env=processes.environ,
    )
    job = sent.stdout.strip()
    wait_for(lambda: (tmp_path / "formed").exists())
    three_nodes.run("scancel", job)
    wait_for(lambda: not running_with(str(tmp_path)))


def running_with(word):
    """The processes that have this word in their command."""
    found = []
    for folder in Path("/proc").iterdir():
        with suppress(OSError):
            if folder.name.isdigit() and word in (folder / "cmdline").read_bytes().decode():
                found.append(int(folder.name))
    return [pid for pid in found if pid != os.getpid()]


def wait_for(condition):
    deadline_s = time.monotonic() + 100
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.1)
