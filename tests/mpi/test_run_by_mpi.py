"""`hvdtune run --mpi`."""

import pytest

from tests.mpi.conftest import OPENMPI_SLOW, SCRIPTS

_RUN = ["python", "-m", "hvdtune", "run", "--mpi"]


def test_mpirun_starts_the_ranks_with_the_options(mpi):
    words = ["-np", 2, "--cycle-time-ms", 3, "--log-level", "info"]
    done = mpi.run([*_RUN, *words, SCRIPTS / "tells_options.py"])
    assert done.returncode == 0, done.stderr
    # Hydra may cut a line in two, and put a rank's number before both halves.
    for rank in range(2):
        assert f"rank {rank} of 2, by MPI: True, 3.0, info" in done.stdout


def test_the_exit_code_is_the_jobs(mpi):
    done = mpi.run([*_RUN, "-np", 1, "sh", "-c", "exit 7"])
    assert done.returncode == 7


def test_without_a_plugin_nothing_is_started(mpi, tmp_path):
    done = mpi.run([*_RUN, "echo", "started"], XDG_CACHE_HOME=str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith("no plugin for this MPI: run `hvdtune build mpi` once\n")


@pytest.mark.parametrize("mpi", [OPENMPI_SLOW, "mpich"], indirect=True)
@pytest.mark.parametrize(
    "option", ["--trials=2", "--autotune", "--timeline-filename=t.json", "--output-filename=out"]
)
def test_what_needs_our_launcher_is_refused(mpi, option):
    done = mpi.run([*_RUN, option, "echo", "started"])
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{option.partition('=')[0]} needs hvdtune's own launcher" in done.stderr


def test_a_function_runs_on_ranks_that_mpirun_starts(mpi):
    done = mpi.run(["python", SCRIPTS / "calls_a_function.py"])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "results [([0, 1], 10, True), ([0, 1], 11, True)]" in done.stdout
    assert "raised 1 rank 1: KeyError: 'no such weight'" in done.stdout
    assert "out of 0" in done.stdout and "out of 1" in done.stdout
