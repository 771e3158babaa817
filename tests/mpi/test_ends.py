"""How jobs under mpirun end."""

import pytest

# Hydra ends the survivors when a process of its own has died, now and then whatever it is told. So
# its process is this one, which lives on with the connection it was given until they have spoken.
OUTLIVE = """
trap '' USR1
"$@"
for i in $(seq 200); do test -e "$TOLD" && break; sleep 0.1; done
"""

# mpirun ends a job when a rank dies. Told not to, it shows what the survivors say.
LET_SURVIVORS_SPEAK = {
    "openmpi": {"options": ["--rtos", "continuous"]},
    "mpich": {"within": ["sh", "-c", OUTLIVE, "sh"]},
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "way",
    ["as-it-is", "shutdown", "mpi4py-first", "mpi4py-later-shutdown", "mpi4py-first-finalize"],
)
def test_a_good_end_is_silent(mpi, way):
    done = mpi.mpirun(2, "ends.py", way, HVDTUNE_CPU_OPERATIONS="mpi")
    assert (done.returncode, done.stdout.count("reached the end"), done.stderr) == (0, 2, "")


@pytest.mark.parametrize(("way", "said"), [("raise", "a bug of the script"), ("kill", "")])
def test_a_rank_that_fails_ends_the_job(mpi, way, said):
    done = mpi.mpirun(2, "ends.py", way, HVDTUNE_CPU_OPERATIONS="mpi")
    assert done.returncode != 0
    assert said in done.stderr
    assert "reached the end" not in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("operations", ["hvdtune", "mpi"])
def test_survivors_name_the_killed_rank(mpi, operations, tmp_path):
    told = tmp_path / "told"
    done = mpi.mpirun(
        *(2, "ends.py", "kill", told),
        **LET_SURVIVORS_SPEAK[mpi.flavour],
        HVDTUNE_CPU_OPERATIONS=operations,
        TOLD=str(told),
    )
    # Not printed: a launcher may drop what ranks print after one was killed.
    assert told.is_file(), done.stderr
    assert told.read_text() == "rank 1 was lost"
