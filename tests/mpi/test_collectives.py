"""Jobs that mpirun starts."""

import pytest


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_collectives_agree_with_numpy_with_mpi_for_control_and_for_data(succeeds, ranks):
    output = succeeds(ranks, "tour.py", ranks)
    assert output.count("is done") == ranks
