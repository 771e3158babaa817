"""omnifold's training with tf.keras as PyPI has it: docs/omnifold.md."""

from pathlib import Path

import numpy as np
import pytest

from tests.kit import third_party
from tests.kit.third_party import furthest

SCRIPT = Path(__file__).parent / "scripts/omnifold_unfold.py"
EVENTS = 512

pytestmark = [
    pytest.mark.slow,  # imports TensorFlow in every rank, and compiles sixteen models
    third_party.is_needed("omnifold"),
]


def unfold(folder, ranks, batch, *part):
    """The weights that each rank has at the end."""
    folder.mkdir()
    launch = ("-m", "hvdtune", "run", "-np", ranks, SCRIPT, folder, EVENTS, batch, *part)
    third_party.run("omnifold", *launch, folder=folder)
    return [dict(np.load(folder / f"rank-{rank}.npz")) for rank in range(ranks)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    (only,) = unfold(tmp_path_factory.mktemp("whole") / "run", 1, EVENTS)
    return only


@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_train_to_the_weights_of_one_process_with_the_whole_batch(tmp_path, whole, ranks):
    together = unfold(tmp_path / "together", ranks, EVENTS // ranks)
    for rank, own in enumerate(together):
        own_events = whole["pushed"][rank::ranks]
        assert furthest(own, whole | {"pushed": own_events}) < 1e-5


def test_a_rank_that_trained_by_itself_would_have_other_weights(tmp_path, whole):
    (alone,) = unfold(tmp_path / "alone", 1, EVENTS // 2, 0)
    assert furthest(alone, whole | {"pushed": whole["pushed"][0::2]}) > 1e-3
