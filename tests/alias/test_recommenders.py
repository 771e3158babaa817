"""TensorFlow Recommenders-Addons' embedding as PyPI has it: docs/recommenders-addons.md."""

from pathlib import Path

import numpy as np
import pytest

from tests.kit import third_party

HERE = Path(__file__).parent

pytestmark = [
    pytest.mark.slow,  # imports TensorFlow in every rank, and compiles hvdtune's kernels for it
    pytest.mark.timeout(1200),  # up to six ranks in one test
    third_party.is_needed("recommenders"),
]


def train(folder, ranks, learning_rate, way="synchronous"):
    """The weights that each rank has at the end."""
    folder.mkdir()
    script = HERE / "scripts/recommenders_train.py"
    launch = ("-m", "hvdtune", "run", "-np", ranks, script, folder, learning_rate, way)
    # Not the packages of the tests: it is another TensorFlow.
    third_party.run("recommenders", *launch, folder=folder, PYTHONPATH=str(HERE.parents[1]))
    return [dict(np.load(folder / f"rank-{rank}.npz")) for rank in range(ranks)]


@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_train_to_what_one_process_has_with_the_learning_rate_as_many_times(tmp_path, ranks):
    together = train(tmp_path / "together", ranks, 0.1)
    (alone,) = train(tmp_path / "alone", 1, 0.1 * ranks)
    for own in together:
        assert third_party.furthest(own, alone) < 1e-5
    (other,) = train(tmp_path / "other", 1, 0.1)
    assert third_party.furthest(other, alone) > 1e-3


@pytest.mark.parametrize("ranks", [2, 4])
def test_around_horovods_optimizer_they_train_to_what_one_process_has(tmp_path, ranks):
    together = train(tmp_path / "together", ranks, 0.1, "horovod")
    (alone,) = train(tmp_path / "alone", 1, 0.1)
    for own in together:
        assert third_party.furthest(own, alone) < 1e-5
