"""What `hvdtune submit` writes, taken by a real Slurm."""

import contextlib
import os
import time

import pytest

from tests.kit import programs
from tests.parallel import netns, slurm

pytestmark = [
    pytest.mark.slow,  # starts the daemons of Slurm
    pytest.mark.skipif(bool(slurm.why_not()), reason=slurm.why_not()),
]

TRAIN = """
import os, sys
from hvdtune.core.rank.objects import allgather_object
from hvdtune.core.rank.runtime import init, local_rank, rank, size

init()
said = allgather_object((rank(), local_rank(), size()))
if rank() == 0:
    print("said", said, sys.argv[1:], flush=True)
"""
_WAIT_S = 120.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with slurm.cluster(tmp_path_factory.mktemp("slurm")) as made:
        yield made


@pytest.mark.parametrize(
    "run_options",
    [(), ("--fusion-threshold-mb", "1"), ("--per-node", "--fusion-threshold-mb", "1")],
    ids=["srun", "hvdtune-run", "per-node"],
)
def test_slurm_takes_the_script_and_its_ranks_form_a_job(cluster, tmp_path, run_options):
    said = submitted(cluster, tmp_path, *run_options)
    assert f"said [(0, 0, 2), (1, 1, 2)] ['--note', \"it's a $HOME\"]{os.linesep}" in said, said


@pytest.mark.skipif(bool(netns.why_not()), reason=netns.why_not())
def test_one_launcher_on_each_of_three_nodes_needs_no_ssh(tmp_path):
    (tmp_path / "slurm").mkdir()
    with netns.network(3) as net, slurm.cluster(tmp_path / "slurm", net.hosts) as cluster:
        said = submitted(cluster, tmp_path, "--per-node", "--nodes", "3")
    places = [(rank, rank % 2, 6) for rank in range(6)]
    assert f"said {places} ['--note', " in said, said
    assert "srun started hvdtune on 3 nodes: host-0:2,host-1:2,host-2:2" in said


def submitted(cluster, tmp_path, *more):
    """The output of a job of two ranks on each node, when it has ended."""
    (tmp_path / "train.py").write_text(TRAIN)
    words = ("submit", "--slurm", "--ranks-per-node", "2", "--time", "5m", "--output", "out.txt")
    done = cluster.run(
        *programs.hvdtune(*words, *more, "train.py", "--note", "it's a $HOME"),
        env=programs.environ(HVDTUNE_SHARED_FOLDER=str(tmp_path)),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("hvdtune: Submitted batch job ")
    number = done.stderr.split()[-1]
    give_up_s = time.monotonic() + _WAIT_S
    while cluster.run("squeue", "-h", "-j", number).stdout.strip():
        assert time.monotonic() < give_up_s
        time.sleep(0.2)
    with contextlib.suppress(FileNotFoundError):
        return (tmp_path / "out.txt").read_text()
    return ""
