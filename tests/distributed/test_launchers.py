"""Groups of the backend hvdtune whose ranks a launcher has started, by each kind of store."""

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from hvdtune.distributed import job, rendezvous
from hvdtune.errors import UsageError
from hvdtune.timeline.reading.opening import open_trace
from tests.mpi.conftest import AS_ROOT, OPENMPI
from tests.mpi.environment import environment

SIZE = 3
SCRIPT = Path(__file__).parent / "scripts" / "meets.py"
BIN = Path(sys.executable).parent
VERDICTS = (0, 3, 4)  # what `hvdtune run --trials` returns where it has found what there is to find
_OF_LAUNCHERS = ("HVDTUNE_", "HOROVOD_", "SLURM", "PMI", "OMPI_", "MPI_", "TORCHELASTIC", "MASTER_")


def command_of(launcher, size):
    if launcher in ("openmpi", "mpich"):
        binding = OPENMPI if launcher == "openmpi" else []
        mpirun = str(environment(launcher) / "bin" / "mpirun")
        return [mpirun, *binding, "-n", str(size), sys.executable]
    return {
        "alone": [sys.executable],
        "run": [sys.executable, "-m", "hvdtune", "run", "-np", str(size)],
        "torchrun": [str(BIN / "torchrun"), "--standalone", "--nproc-per-node", str(size)],
    }[launcher]


def run(launcher, *arguments, size=SIZE, before=(), codes=(0,), **variables):
    """What the ranks of a launcher print, joined. `before`: more options of the launcher."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_OF_LAUNCHERS)}
    process = subprocess.Popen(
        [*command_of(launcher, size), *before, *arguments],
        env=kept | AS_ROOT | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        said, errors = process.communicate(timeout=200)
    finally:
        # A launcher that is asked to end ends its ranks; one that is killed leaves them.
        process.terminate()
        process.wait()
    assert process.returncode in codes, said + errors
    return said


def check(output, size=SIZE):
    """That the ranks met twice, and each had what its left neighbour sent."""
    said = re.findall(r"said (\[[^]]*\])", output)
    total = size * (size + 1) // 2
    expected = [f"[{rank}, {size}, {total}, {(rank - 1) % size}]" for rank in range(size)]
    assert sorted(said) == sorted(2 * expected), output


def test_hvdtune_run_needs_no_word_about_where_ranks_meet():
    check(run("run", SCRIPT, "env"))


@pytest.mark.slow  # starts as many processes that import torch
@pytest.mark.parametrize("way", ["env", "tcp", "file"])
@pytest.mark.parametrize("launcher", ["run", "torchrun", "openmpi", "mpich"])
def test_a_launcher_and_a_store(launcher, way, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    urls = {"tcp": f"tcp://127.0.0.1:{port}", "file": f"file://{tmp_path}/store"}
    if launcher == "torchrun":  # which opens the store itself: no rank does
        urls["tcp"] = "tcp://{MASTER_ADDR}:{MASTER_PORT}"
    check(run(launcher, SCRIPT, urls.get(way, way)))


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["openmpi", "mpich"])
def test_mpirun_with_torchs_variables_of_where_rank_0_listens(launcher):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    check(run(launcher, SCRIPT, "env://", **where))


@pytest.mark.slow
def test_a_process_alone_with_a_hash_store():
    check(run("alone", SCRIPT, "hash"), size=1)


@pytest.mark.slow
def test_torchrun_restarts_a_job_of_which_a_rank_was_killed():
    program = [str(SCRIPT.with_name("restarts.py"))]
    said = run("torchrun", *program, before=["--max-restarts", "1"])
    assert sorted(re.findall(r"said (\[[^]]*\])", said)) == [f"[1, {rank}]" for rank in range(SIZE)]


@pytest.mark.slow
def test_a_script_of_ddp_is_tuned_while_it_runs_and_trains_to_the_same_bits(tmp_path):
    program = ["--", sys.executable, str(SCRIPT.with_name("trains.py")), "1500"]
    plain = re.findall(r"trained to (\d+)", run("run", *program, size=2))
    study = tmp_path / "study"
    options = ["--trials", "2", "--step-budget", "4000", "-o", str(study)]
    run("run", *program, size=2, before=options, codes=VERDICTS)
    pairs = [json.loads(line) for line in (study / "pairs.jsonl").read_text().splitlines()]
    assert {"calibrate", "search"} <= {pair["phase"] for pair in pairs}
    trace = open_trace(study / "trace.json").slices
    adopted = trace[trace["name"] == "KNOB_ADOPTED"].groupby("rank", observed=True).size()
    assert set(adopted.index) == {0, 1} and adopted.min() > 4
    written = "".join(path.read_text() for path in (study / "output").rglob("*") if path.is_file())
    assert {*plain, *re.findall(r"trained to (\d+)", written)} == {plain[0]}


@pytest.mark.slow
def test_ddps_buckets_and_hvdtunes_knobs_are_set_for_one_script():
    program = ["--", sys.executable, str(SCRIPT.with_name("buckets.py"))]
    knobs = {"ddp_bucket_cap_mb": 1.5, "ddp_first_bucket_mb": 0.5, "cycle_time_ms": 2}
    fixed = [word for name, value in knobs.items() for word in ("--fix", f"{name}={value}")]
    usual = run("run", *program, size=2)
    changed = run("run", "--adapter", "hvdtune", *fixed, *program, size=2)
    assert re.findall(r"said (.*)", usual) == ["1 buckets, 1.0 ms"] * 2
    assert re.findall(r"said (.*)", changed) == ["2 buckets, 2.0 ms"] * 2


_ENDS_AT_ONCE = """
import torch
from torch import distributed as dist
dist.init_process_group("hvdtune", store=dist.HashStore(), rank=0, world_size=1)
torch.kept = dist.all_reduce(torch.ones(1), async_op=True)
"""


@pytest.mark.slow
def test_a_script_may_end_with_an_operation_that_nobody_waits_for():
    words = [sys.executable, "-c", _ENDS_AT_ONCE]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=200)
    assert (ended.returncode, "Exception ignored" in ended.stderr) == (0, False), ended.stderr


def test_the_timeout_of_the_first_group_is_the_jobs_also_under_hvdtune_run(monkeypatch, tmp_path):
    (tmp_path / "key").write_bytes(bytes(32))
    (tmp_path / "key").chmod(0o600)
    for name, value in {**_RUN, "HVDTUNE_KEY_FILE": str(tmp_path / "key")}.items():
        monkeypatch.setenv(name, value)
    config = job._launched(job.GroupPlace(None, 0, 2, 77.0, (0, 1)))
    assert config is not None and config.timeouts.hang_abort_s == 77


_RUN = {"HVDTUNE_RENDEZVOUS": "127.0.0.1:1", "HVDTUNE_RANK": "0", "HVDTUNE_SIZE": "2"}
_TORCH = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "2"}


@pytest.mark.parametrize(
    ("environ", "url", "expected"),
    [
        (_RUN, "env://", True),
        (_RUN, "env://?rank=0&world_size=2", True),
        (_RUN | {"RANK": "0", "WORLD_SIZE": "2"}, "env://", True),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, "env://", True),
        (_RUN | _TORCH, "env://", False),
        ({"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "2"}, "env://?rank=0&world_size=2", False),
        ({}, "env://", False),
    ],
)
def test_torchs_own_way_comes_first_and_then_the_launchers(environ, url, expected):
    assert rendezvous.is_ours(environ, url) is expected


def test_an_elastic_job_is_refused(monkeypatch):
    monkeypatch.setenv("HVDTUNE_WORKER", "0")
    with pytest.raises(UsageError, match="without --min-np"):
        next(rendezvous.meet("env://"))
