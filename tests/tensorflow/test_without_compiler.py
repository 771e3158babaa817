"""Where TensorFlow's operations cannot be built, Python carries them out, as correctly."""

import os
import warnings

import pytest
import tensorflow as tf

import hvdtune.tensorflow as hvd
from hvdtune.errors import MismatchError
from hvdtune.tensorflow import library
from tests.contract.calls import difference, expected, finish, start
from tests.contract.framework import WITH_GRAPHS
from tests.contract.test_collectives import KINDS, variants
from tests.contract.test_gradients import Rules
from tests.parallel.ranks import run
from tests.tensorflow.test_tape import batch, distance, joined, train


def carry_out(framework):
    """Problems of some of every collective."""
    calls = [c for kind in KINDS for c in list(variants(kind, (0, 1), ()))[::9]]
    started = framework.together(
        lambda: [start(c, f"c{i}", hvd.global_process_set, framework) for i, c in enumerate(calls)]
    )
    problems = []
    for call, results in zip(calls, started, strict=True):
        found, wanted = finish(call, results, framework), expected(call, hvd.rank())
        problems.append(difference(call, hvd.rank(), found, wanted, framework))
    return [problem for problem in problems if problem], len(calls)


def train_without(empty):
    os.environ.pop("CXX", None)
    os.environ["PATH"] = os.environ["XDG_CACHE_HOME"] = str(empty)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        rows = {name: carry_out(WITH_GRAPHS[name]) for name in ("tensorflow", "tf.function")}
        for name in rows:
            rows[name] += (Rules(WITH_GRAPHS[name], hvd.global_process_set).check_all(),)
        alone = train(lambda tape: tape, joined(), in_graph=True)
        far = [
            distance(
                train(hvd.DistributedGradientTape, batch(hvd.rank()), in_graph=in_graph), alone
            )
            for in_graph in (True, False)
        ]
    assert library.operations() is None
    said = [str(w.message) for w in caught if w.category is RuntimeWarning]
    with pytest.raises(MismatchError):
        hvd.allreduce(tf.ones([2 + hvd.rank()]), name="odd")
    last = tf.function(hvd.join)().numpy().item()
    return rows, far, said, last


@pytest.mark.timeout(300)
def test_without_a_compiler_python_carries_operations_out(tmp_path):
    for rows, far, said, last in run(train_without, 2, tmp_path, tensorflow=True, timeout_s=240.0):
        for problems, count, of_gradients in rows.values():
            assert problems == [] and of_gradients == []
            assert count > 12
        assert max(far) <= 1e-6
        (warning,) = said
        assert "Found no C++ compiler" in warning and "hvdtune build tensorflow" in warning
        assert last in (0, 1)
