from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from hvdtune.core.config.knobs import Setting
from tests.kit.simulated_job import no_launch_gain
from tests.tuner.verdict_rates import bimodal, launch_noise, rates

LaunchGain = Callable[[Setting, Random], float]


@pytest.mark.parametrize(
    ("studies", "launch_gain", "false", "covered"),
    [
        pytest.param(60, no_launch_gain, 3, 54, id="alike"),
        pytest.param(
            *(40, launch_noise, 2, 34),
            id="launches-with-levels-of-their-own",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_no_difference_is_called_an_improvement_in_at_most_one_study_of_twenty(
    tmp_path: Path, studies: int, launch_gain: LaunchGain, false: int, covered: int
) -> None:
    found = rates(studies, 0.0, tmp_path, launch_gain)

    assert found.kinds["improved"] <= false
    assert found.covered >= covered


def test_a_true_gain_is_found_and_covered(tmp_path: Path) -> None:
    found = rates(40, 5.0, tmp_path, quiet=True)

    assert found.kinds["improved"] >= 38
    assert found.covered >= 36


# A few such studies are in test_controller.
@pytest.mark.slow
def test_a_setting_with_two_modes_is_never_called_a_small_gain(tmp_path: Path) -> None:
    found = rates(40, 0.0, tmp_path, bimodal)

    assert found.kinds["unstable"] >= 30
