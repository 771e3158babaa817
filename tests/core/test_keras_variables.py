"""What ranks take from a broadcast of the root's generators of random numbers."""

import numpy as np
import pytest

from hvdtune.core.gradients.keras_variables import is_generator, state_on_rank

KERAS = [
    "seed_generator_state",
    "seed_generator_1/seed_generator_state:0",
    "_torch_params.seed_generator/seed_generator_state",
]
TENSORFLOW = ["StateVar:0", "layer/StateVar_1:0"]


@pytest.mark.parametrize("dtype", ["uint32", "int32", "int64"])
@pytest.mark.parametrize("name", KERAS)
def test_the_seed_of_a_layer_is_a_rank_s_own_and_the_count_is_the_root_s(name, dtype):
    root_s = np.array([3, 40], dtype)
    own = [state_on_rank(name, root_s, rank) for rank in (1, 2, 3)]
    assert len({int(state[0]) for state in own} | {3}) == 4
    assert {int(state[1]) for state in own} == {40}
    assert {state.dtype for state in own} == {np.dtype(dtype)}
    assert root_s.tolist() == [3, 40]
    # With another count the same seed, so that a later broadcast lets a rank continue.
    assert state_on_rank(name, np.array([3, 41], dtype), 1).tolist() == [int(own[0][0]), 41]
    assert int(own[0][0]) < 2**32


@pytest.mark.parametrize("name", TENSORFLOW)
def test_a_generator_of_tensorflow_has_its_key_last(name):
    own = state_on_rank(name, np.array([7, 8, 9], np.int64), 1)
    assert own[:2].tolist() == [7, 8] and own[2] != 9


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("dense/kernel", [1.0, 2.0]),
        ("seed", [1, 2]),
        ("seed_generator_state", [1.5, 2.0]),
        ("seed_generator_state", [[1, 2]]),
        ("StateVar", [1]),
    ],
)
def test_other_variables_are_the_root_s(name, values):
    root_s = np.array(values)
    assert state_on_rank(name, root_s, 1) is root_s


def test_names_are_told_by_their_last_part():
    assert all(map(is_generator, [*KERAS, *TENSORFLOW]))
    assert not any(map(is_generator, ["", "seed_generator_state/kernel", "StateVars:0"]))
