"""Keras on torch combines gradients as Keras on TensorFlow does."""

import numpy as np
import pytest

from hvdtune.errors import UsageError
from tests.parallel.ranks import Server, run

# The backend is chosen when Keras is first imported.
SERVER = Server("tests.keras.test_training", KERAS_BACKEND="torch")


def compare():
    import keras

    import hvdtune.keras as hvd
    import hvdtune.torch as torch_hvd
    from tests.keras import test_training as bodies

    assert keras.backend.backend() == "torch"
    found = {}
    for name in ("trained", "with_options", "in_a_set", "accumulated", "partly", "shared"):
        found[name] = getattr(bodies, name)()
    for values, iterations in bodies.accumulated_twice():
        assert iterations == 2 and values == pytest.approx(bodies.right_twice(), abs=1e-6)
    assert bodies.on_tensors() == bodies.RIGHT_ON_TENSORS
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dropout(0.5), keras.layers.Dense(1)])
    torch_hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    found["sent"] = [variable.numpy().tolist() for variable in model.variables]
    plain, weight = keras.optimizers.SGD(), keras.Variable(np.ones(2, "float32"))
    with pytest.raises(UsageError, match="must be a number of at least 0 or a list of lists"):
        hvd.DistributedOptimizer(plain, groups=-1)
    with pytest.raises(UsageError, match="groups contains one of the variables twice"):
        hvd.DistributedOptimizer(plain, groups=[[weight], [weight]])
    found["rank"] = hvd.rank()
    return found


@pytest.mark.timeout(300)
def test_two_ranks_train_as_one_process_does_on_all_data():
    results = run(compare, 2, timeout_s=240.0, forked_from=SERVER)
    (state, *weights), (other, *others) = (found["sent"] for found in results)
    assert weights == others and state[0] != other[0] and state[1] == other[1] == 0
    for found in results:
        # Of float64, too: Keras on torch has kernels' gradients in float32's precision, also alone.
        assert max(found["trained"].values()) <= 2e-6
        assert found["with_options"].pop("half") == pytest.approx(1e-3, rel=1.0)
        assert max(found["with_options"].values()) <= 2e-6
        assert found["in_a_set"] == 0.0
        own = 1.0 + found["rank"]
        assert np.allclose(
            found["partly"], [[1 - 0.05 * own, 0.85], [1 - 0.1 * own, 0.85]], rtol=1e-6
        )
