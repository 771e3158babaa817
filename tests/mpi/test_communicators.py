"""hvd.init(comm=...) and MPI's own calls beside ours."""

import pytest


@pytest.mark.parametrize("operations", ["hvdtune", "mpi"])
def test_a_job_can_have_some_of_the_processes(succeeds, operations):
    output = succeeds(4, "communicators.py", HVDTUNE_CPU_OPERATIONS=operations)
    assert output.count("is done") == 4
