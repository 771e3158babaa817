from pathlib import Path

import pytest

from tests.tuner.verdict_rates import bimodal, launch_noise, rates


def test_no_difference_is_called_an_improvement_in_at_most_one_study_of_twenty(
    tmp_path: Path,
) -> None:
    found = rates(60, 0.0, tmp_path)

    assert found.kinds["improved"] <= 3
    assert found.covered >= 54


def test_a_true_gain_is_found_and_covered(tmp_path: Path) -> None:
    found = rates(40, 5.0, tmp_path, quiet=True)

    assert found.kinds["improved"] >= 38
    assert found.covered >= 36


def test_launches_with_levels_of_their_own_do_not_fake_a_gain(tmp_path: Path) -> None:
    found = rates(40, 0.0, tmp_path, launch_noise)

    assert found.kinds["improved"] <= 2
    assert found.covered >= 34


# A few such studies are in test_controller.
@pytest.mark.slow
def test_a_setting_with_two_modes_is_never_called_a_small_gain(tmp_path: Path) -> None:
    found = rates(40, 0.0, tmp_path, bimodal)

    assert found.kinds["unstable"] >= 30
