"""A node of a real Slurm that dies while ranks run on it and on others."""

import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.kit import programs
from tests.parallel import netns, slurm

_WHY_NOT = slurm.why_not() or netns.why_not()
pytestmark = [
    # Starts the daemons of Slurm for each test, since it kills one, and waits until Slurm itself
    # takes that node for lost.
    pytest.mark.slow,
    pytest.mark.timeout(400),
    pytest.mark.skipif(bool(_WHY_NOT), reason=_WHY_NOT),
]

TRAIN = """
from pathlib import Path
from hvdtune.core.rank.collectives import barrier
from hvdtune.core.rank.runtime import init, rank

init()
barrier()
Path(f"formed-{rank()}").touch()
while True:
    barrier()
"""
_HABITS = {
    "one-task-for-each-rank": (),
    "one-hvdtune-run-on-each-node": ("-m", "hvdtune", "run", "-np", "{ranks}"),
}
_DAEMONS = {"munged", "slurmctld", "slurmctld:", "slurmd"}  # with a colon: slurmscriptd
_LOST_AFTER_S = 5


class Job:
    """A step of srun's on some nodes of a cluster, which may lose one."""

    def __init__(self, cluster, net, folder):
        self.cluster, self.net, self.folder = cluster, net, folder
        self.script = folder / "train.py"
        self.script.write_text(TRAIN)
        self._step = None

    def start(self, habit, nodes):
        """One rank on each of the nodes, all of which have met when it returns."""
        names = ",".join(self.cluster.nodes[number][0] for number in nodes)
        words = [word.format(ranks=len(nodes)) for word in _HABITS[habit]]
        where = [f"--nodes={len(nodes)}", f"--nodelist={names}", "--ntasks-per-node=1"]
        environ = programs.environ(HVDTUNE_SHARED_FOLDER=str(self.folder))
        self._step = subprocess.Popen(
            self.cluster.on(0, "srun", *where, sys.executable, *words, str(self.script)),
            env=environ | self.cluster.environ,
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        wait_for(lambda: len(list(self.folder.glob("formed-*"))) == len(nodes))

    def lose(self, number, how):
        if how == "killed":
            self.cluster.clear(number)
            return
        lost = self.net.hosts[number]
        for other in self.net.hosts:
            if other is not lost:
                self.net.rule(lost, other, "drop")
                self.net.rule(other, lost, "drop")

    def running(self):
        """The processes of ranks and of `hvdtune run`, on all nodes."""
        found = []
        for number in range(len(self.cluster.nodes)):
            for pid in self.cluster.processes(number):
                words = words_of(pid)
                if str(self.script) in words and words[0] != "srun":
                    found.append((number, pid))
        return found

    def end(self):
        """The exit code and what was said, when srun has ended."""
        said, error = self._step.communicate(timeout=200)
        return self._step.returncode, said + error

    def left_on(self, number):
        """The processes there besides Slurm's daemons."""
        # Some write what they do behind their name.
        found = (words_of(pid)[0].split() for pid in self.cluster.processes(number))
        return {Path(words[0]).name for words in found if words} - _DAEMONS


def words_of(pid):
    with suppress(OSError):  # it has ended
        return (Path("/proc") / str(pid) / "cmdline").read_text().split("\0")
    return [""]


def wait_for(condition):
    deadline_s = time.monotonic() + 150
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.1)


@pytest.fixture
def job(tmp_path):
    tmp_path.chmod(0o700)
    (tmp_path / "slurm").mkdir()
    with (
        netns.network(3) as net,
        slurm.cluster(tmp_path / "slurm", net.hosts, _LOST_AFTER_S) as cluster,
    ):
        yield Job(cluster, net, tmp_path)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("killed", "rank 2 closed its connection: the process exited or was killed"),
        ("cut-off", "rank 2 has not answered for 2 s: its host cannot be reached"),
    ],
)
@pytest.mark.parametrize("habit", _HABITS)
def test_the_others_end_and_name_who_was_there(job, habit, how, said):
    job.start(habit, nodes=(0, 1, 2))
    job.lose(2, how)
    # Before Slurm ends them, which waits for the node for longer, and where nobody can reach them.
    wait_for(lambda: not job.running())
    code, told = job.end()
    assert code == 1
    assert told.count(f"hvdtune.errors.RankLostError: {said}") == 2
    assert "srun: error: Node failure on host-2" in told
    wait_for(lambda: not job.left_on(0) | job.left_on(1))


def test_the_end_of_the_node_that_launches_ends_the_others(job):
    job.start("one-hvdtune-run-on-each-node", nodes=(1, 2))
    job.lose(1, "killed")
    wait_for(lambda: not job.running())
    code, told = job.end()
    assert code == 1
    assert "the launcher on the first node: it has gone" in told
    wait_for(lambda: not job.left_on(2))
