"""DistributedOptimizer in `fit` trains as one process does on the joined batch."""

import pickle
from contextlib import nullcontext
from functools import cache

import keras
import numpy as np
import pytest

import hvdtune.keras as hvd
from hvdtune.errors import UsageError
from tests.parallel.bodies import Bodies
from tests.parallel.ranks import run

pytestmark = pytest.mark.timeout(300)
bodies = Bodies()
TOLERANCE = {"float32": 1e-6, "float64": 1e-12}


def run_bodies():
    return bodies.run_all()


@pytest.fixture(scope="module")
def said():
    """Return the results of every body on the two ranks."""
    return bodies.of_every_rank(run_bodies, 2, tensorflow=True)


def data(rank, dtype="float32"):
    """Return a rank's inputs and targets, 16 rows that it takes in batches of four."""
    generator = np.random.default_rng(rank)
    return generator.standard_normal((16, 6)).astype(dtype), (
        generator.standard_normal((16, 1)).astype(dtype)
    )


def joined(dtype="float32"):
    """Return both ranks' rows in batches of eight, four from each rank."""
    (x0, y0), (x1, y1) = data(0, dtype), data(1, dtype)
    order = [(x0[i : i + 4], x1[i : i + 4]) for i in range(0, 16, 4)]
    answers = [(y0[i : i + 4], y1[i : i + 4]) for i in range(0, 16, 4)]
    return np.concatenate([np.concatenate(p) for p in order]), np.concatenate(
        [np.concatenate(p) for p in answers]
    )


def make_model(dtype="float32"):
    keras.utils.set_random_seed(3)
    return keras.Sequential(
        [
            keras.Input((6,), dtype=dtype),
            keras.layers.Dense(300, activation="tanh", dtype=dtype),
            keras.layers.Dense(20, dtype=dtype),
            keras.layers.Dense(1, dtype=dtype),
        ]
    )


def make_optimizer(kind):
    if kind == "adam":
        return keras.optimizers.Adam(0.01)
    return keras.optimizers.SGD(0.01, momentum=0.9)


def fit(wrap, rows, batch_size, *, dtype="float32", kind="sgd", model=None, **options):
    """Trained weights."""
    model = model or make_model(dtype)
    loss = keras.losses.MeanSquaredError(dtype=dtype)  # in float32 unless told otherwise
    model.compile(optimizer=wrap(make_optimizer(kind)), loss=loss, **options)
    model.fit(*rows, batch_size=batch_size, epochs=2, shuffle=False, verbose=0)
    return [weight.numpy() for weight in model.weights]


@cache
def alone(dtype="float32", kind="sgd"):
    return fit(lambda optimizer: optimizer, joined(dtype), 8, dtype=dtype, kind=kind)


def distance(values, others):
    """The largest, relative to the largest value."""
    rows = zip(values, others, strict=True)
    return max(np.abs(a - b).max() / np.abs(b).max() for a, b in rows)


TRAININGS = [("float32", "sgd", False), ("float32", "sgd", True), ("float64", "adam", False)]


@bodies
def trained():
    rows = {}
    for dtype, kind, eagerly in TRAININGS:
        values = fit(
            hvd.DistributedOptimizer,
            data(hvd.rank(), dtype),
            4,
            dtype=dtype,
            kind=kind,
            run_eagerly=eagerly,
        )
        rows[dtype, kind, eagerly] = distance(values, alone(dtype, kind))
    return rows


@pytest.mark.parametrize(("dtype", "kind", "eagerly"), TRAININGS)
def test_two_ranks_train_as_one_process_does_on_all_data(said, dtype, kind, eagerly):
    for far in said["trained"]:
        # Sums in another order; momentum carries the last bit of a float32 along.
        assert far[dtype, kind, eagerly] <= 2 * TOLERANCE[dtype]


OPTIONS = {
    "predivided": lambda model: {"gradient_predivide_factor": 4.0},
    "two groups": lambda model: {"groups": 2},
    "lists": lambda model: {"groups": [model.layers[0].trainable_variables, [model.variables[3]]]},
    "half": lambda model: {"compression": hvd.Compression.fp16},
}


@bodies
def with_options():
    right = alone()
    rows = {}
    for name, options_of in OPTIONS.items():
        model = make_model()
        options = options_of(model)
        values = fit(
            lambda optimizer, options=options: hvd.DistributedOptimizer(optimizer, **options),
            data(hvd.rank()),
            4,
            model=model,
        )
        rows[name] = distance(values, right)
    return rows


@pytest.mark.parametrize("name", OPTIONS)
def test_options_change_how_gradients_travel_and_not_what_is_trained(said, name):
    for far in said["with_options"]:
        assert far[name] <= (2e-3 if name == "half" else 2e-6)


@bodies
def in_a_set():
    """Rank 1 trains alone, as rank 0 does."""
    only = hvd.add_process_set([1])
    values = fit(
        lambda optimizer: hvd.DistributedOptimizer(optimizer, process_set=only),
        data(hvd.rank()),
        4,
    )
    hvd.remove_process_set(only)
    return distance(values, fit(lambda optimizer: optimizer, data(hvd.rank()), 4))


def pass_by_pass(weights, gradients, passes, average):
    """Plain descent by what both ranks' passes add up to."""
    for begin in range(0, len(gradients) - passes + 1, passes):
        total = sum(gradients[begin : begin + passes])
        weights = weights - 0.1 * total / (passes if average else 1)
    return weights


@bodies
def accumulated():
    """A single weight, of which every pass has a gradient that is known beforehand."""
    rows = {}
    inputs = np.arange(1.0, 8.0, dtype="float32")[:, None] * (1 + hvd.rank())
    for average in (False, True):
        for eagerly in (False, True):
            model = keras.Sequential(
                [
                    keras.Input((1,)),
                    keras.layers.Dense(1, use_bias=False, kernel_initializer="ones"),
                ]
            )
            optimizer = hvd.DistributedOptimizer(
                keras.optimizers.SGD(0.1),
                backward_passes_per_step=3,
                average_aggregated_gradients=average,
            )
            # Of the mean output: the gradient is the mean input.
            model.compile(optimizer, loss=lambda _, out: out, run_eagerly=eagerly)
            values = []
            for row in inputs:
                model.train_on_batch(row[None], row[None])
                values.append(model.get_weights()[0].item())
            rows[average, eagerly] = values, int(optimizer.iterations.numpy())
    return rows


@pytest.mark.parametrize("average", [False, True])
def test_gradients_of_several_passes_add_up_before_they_travel(said, average):
    mean = [1.5 * number for number in range(1, 8)]
    right = [pass_by_pass(1.0, mean[:count], 3, average) for count in range(1, 8)]
    for rows in said["accumulated"]:
        for eagerly in (False, True):
            values, iterations = rows[average, eagerly]
            assert values == pytest.approx(right, rel=1e-6)
            assert iterations == 7


@bodies
def accumulated_twice():
    """Two passes for each that is sent, three of those for each update by Keras."""
    rows = []
    for eagerly in (False, True):
        layer = keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")
        model = keras.Sequential([keras.Input((1,)), layer])
        plain = keras.optimizers.SGD(0.1, gradient_accumulation_steps=3)
        optimizer = hvd.DistributedOptimizer(plain, backward_passes_per_step=2)
        model.compile(optimizer, loss=lambda _, out: out, run_eagerly=eagerly)
        values = []
        for number in range(1, 13):
            row = np.array([[number * (1.0 + hvd.rank())]], "float32")
            model.train_on_batch(row, row)
            values.append(model.get_weights()[0].item())
        rows.append((values, int(optimizer.iterations)))
    return rows


def right_twice():
    """The weights after each pass: by the mean over ranks, 1.5 times the number, and over three."""
    first, second = (0.1 * 1.5 * sum(numbers) / 3 for numbers in (range(1, 7), range(7, 13)))
    return [1.0] * 5 + [1.0 - first] * 6 + [1.0 - first - second]


def test_keras_accumulates_what_was_accumulated_before_it_was_sent(said):
    for values, iterations in (each for rows in said["accumulated_twice"] for each in rows):
        assert values == pytest.approx(right_twice(), abs=1e-6)
        assert iterations == 2


@bodies
def on_tensors():
    """Each function on what scripts give it: results and their types, as lists and names."""
    import hvdtune.tensorflow.keras as tf_hvd

    packages = [hvd, tf_hvd] if keras.backend.backend() == "tensorflow" else [hvd]
    own, found = 1 + hvd.rank(), []
    for package in packages:
        ones = np.full((2, 2), own, "float64")
        for result in (
            package.allreduce(own * 1.0),
            package.allreduce(ones, op=hvd.Sum),
            package.allreduce(keras.ops.convert_to_tensor(ones)),
            package.allgather(ones[:own]),
            package.broadcast(own, 1, name="number"),
            package.broadcast(keras.Variable(ones), root_rank=1, name="variable"),
            package.reducescatter(ones, op=hvd.Sum),
        ):
            assert keras.ops.is_tensor(result)
            found.append((result.numpy().tolist(), str(result.numpy().dtype)))
        with (
            pytest.warns(DeprecationWarning, match="average=")
            if package is tf_hvd
            else nullcontext()
        ):
            package.allreduce(1.0, average=False)
    return found


RIGHT_ON_TENSORS = [
    (1.5, "float32"),
    ([[3.0, 3.0]] * 2, "float64"),
    ([[1.5, 1.5]] * 2, "float64"),
    ([[1.0, 1.0], [2.0, 2.0], [2.0, 2.0]], "float64"),
    (2, "int32"),
    ([[2.0, 2.0]] * 2, "float64"),
    ([[3.0, 3.0]], "float64"),
]


def test_results_are_tensors_of_the_backend(said):
    assert said["on_tensors"] == [RIGHT_ON_TENSORS * 2] * 2


def lookups(rank):
    return np.array([[0, 3, 3, 7], [5, 3, 0, 1]][rank])


@bodies
def sparsely():
    def embed(wrap, words, batch_size):
        keras.utils.set_random_seed(5)
        table = keras.layers.Embedding(9, 4, dtype="float64")
        model = keras.Sequential([keras.Input(()), table, keras.layers.Dense(1, dtype="float64")])
        model.compile(wrap(keras.optimizers.SGD(0.5)), loss="mse")
        model.fit(words, np.ones((len(words), 1)), batch_size=batch_size, epochs=3, verbose=0)
        return [weight.numpy() for weight in model.weights]

    right = embed(lambda optimizer: optimizer, np.concatenate([lookups(0), lookups(1)]), 8)
    return [
        distance(
            embed(
                lambda optimizer, options=options: hvd.DistributedOptimizer(optimizer, **options),
                lookups(hvd.rank()),
                4,
            ),
            right,
        )
        for options in (
            {},
            {"sparse_as_dense": True},
        )
    ]


def test_looked_up_rows_are_gathered_or_made_dense(said):
    for far in said["sparsely"]:
        assert max(far) <= 1e-12


@bodies
def partly():
    """The first layer is this rank's own."""
    rows = []
    for scale in (True, False):
        # Not linear: of two plain products in a row, TensorFlow 2.21 now and then takes the first
        # for the gradient of the second after the weights have been updated.
        first = keras.layers.Dense(1, use_bias=False, kernel_initializer="ones", activation="relu")
        second = keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")
        model = keras.Sequential([keras.Input((1,)), first, second])
        optimizer = hvd.PartialDistributedOptimizer(
            keras.optimizers.SGD(0.1), local_layers=first, scale_local_gradients=scale
        )
        model.compile(optimizer, loss=lambda _, out: out)
        model.train_on_batch(np.full((1, 1), 1.0 + hvd.rank()), np.ones((1, 1)))
        rows.append([weight.item() for weight in model.get_weights()])
    return rows


def test_gradients_of_local_layers_stay(said):
    for rank, rows in enumerate(said["partly"]):
        own = 1.0 + rank
        assert np.allclose(rows, [[1 - 0.05 * own, 0.85], [1 - 0.1 * own, 0.85]], rtol=1e-6)


@bodies
def scaled_losses():
    """float16, whose largest number is 65504: at its second step rank 1 has an overflow."""
    rows = {}
    for how in ("given", "by policy"):
        half = keras.Sequential(
            [
                keras.Input((1,)),
                keras.layers.Dense(
                    1, use_bias=False, kernel_initializer="ones", dtype="mixed_float16"
                ),
            ]
        )
        inner = keras.optimizers.SGD(0.5)
        if how == "given":
            optimizer = hvd.DistributedOptimizer(
                keras.optimizers.LossScaleOptimizer(inner, initial_scale=1024.0)
            )
        else:
            keras.mixed_precision.set_dtype_policy("mixed_float16")
            optimizer = hvd.DistributedOptimizer(inner)
            optimizer.initial_scale = 1024.0
        half.compile(optimizer, loss=lambda _, out: out)
        keras.mixed_precision.set_dtype_policy("float32")
        values = []
        for step in range(3):
            value = 1000.0 if hvd.rank() == 1 and step == 1 else 1.0 + hvd.rank()
            half.train_on_batch(np.full((1, 1), value), np.ones((1, 1)))
            values.append(half.get_weights()[0].item())
        scale = float(half.optimizer.dynamic_scale)
        rows[how] = values, scale, type(half.optimizer).__name__
    return rows


@pytest.mark.parametrize("how", ["given", "by policy"])
def test_a_step_that_overflows_on_one_rank_is_skipped_on_all(said, how):
    for values, scale, kind in (rows[how] for rows in said["scaled_losses"]):
        assert kind == "LossScaleOptimizer"
        assert values == pytest.approx([0.25, 0.25, -0.5])
        assert scale == 512.0


@bodies
def kept():
    plain = keras.optimizers.Adam(0.5)
    before = keras.optimizers.serialize(plain)
    wrapped = hvd.DistributedOptimizer(plain)
    loaded = pickle.loads(pickle.dumps(wrapped))
    return (
        keras.optimizers.serialize(wrapped) == before,
        type(loaded) is keras.optimizers.Adam,
        type(hvd.DistributedOptimizer(loaded)) is not keras.optimizers.Adam,
        # By which programs tell it from others
        str(wrapped).startswith("<horovod._keras.Adam object"),
    )


@pytest.mark.parametrize(
    ("body", "value"),
    [
        pytest.param("in_a_set", 0.0, id="only-a-process-set-combines"),
        pytest.param("kept", (True,) * 4, id="saved-as-what-it-wraps"),
    ],
)
def test_a_wrapped_optimizer_on_two_ranks(said, body, value):
    assert said[body] == [value] * 2


def replaced(optimizer):
    optimizer.apply = print
    return optimizer


@bodies
def refused():
    messages = []
    for call in (
        lambda: hvd.DistributedOptimizer(3),
        lambda: hvd.DistributedOptimizer(hvd.DistributedOptimizer(keras.optimizers.SGD())),
        lambda: hvd.DistributedOptimizer(keras.optimizers.SGD(), op=hvd.Adasum),
        lambda: hvd.DistributedOptimizer(keras.optimizers.SGD(), groups=-1),
        lambda: hvd.DistributedOptimizer(keras.optimizers.SGD(), backward_passes_per_step=0),
        lambda: hvd.PartialDistributedOptimizer(keras.optimizers.SGD(), local_layers=[1]),
        lambda: make_model().compile(
            hvd.DistributedOptimizer(keras.optimizers.SGD()), "mse", jit_compile=True
        ),
        lambda: make_model().compile(
            keras.optimizers.LossScaleOptimizer(hvd.DistributedOptimizer(keras.optimizers.SGD()))
        ),
        lambda: hvd.DistributedOptimizer(replaced(keras.optimizers.SGD())),
        lambda: replaced(hvd.DistributedOptimizer(keras.optimizers.Adam())),
    ):
        with pytest.raises(UsageError) as caught:
            call()
        messages.append(str(caught.value))
    return messages


REFUSALS = [
    "not int",
    "wrap it once",
    "do not support Adasum",
    "must be a number of at least 0",
    "backward_passes",
    "not a Keras layer",
    "jit_compile",
    "DistributedOptimizer(LossScaleOptimizer(",
    "apply of this SGD was replaced",
    "apply of this Adam was replaced",
]


@pytest.mark.parametrize("part", REFUSALS)
def test_bad_arguments_are_refused_in_a_sentence(said, part):
    for messages in said["refused"]:
        message = dict(zip(REFUSALS, messages, strict=True))[part]
        assert part in message and "\n" not in message


@bodies
def shared():
    """Whoever holds the optimizer that was wrapped sees the same state."""
    inner = keras.optimizers.Adam(0.1)
    wrapped = hvd.DistributedOptimizer(inner)
    weight = keras.Variable(np.ones(3, "float32"))
    gradient = keras.ops.convert_to_tensor(np.full(3, 1.0 + hvd.rank(), "float32"))
    wrapped.apply([gradient], [weight])
    wrapped.learning_rate = 0.5
    assert isinstance(wrapped, keras.optimizers.Adam) and wrapped.get_config() == inner.get_config()
    return int(inner.iterations.numpy()), float(inner.learning_rate), weight.numpy().tolist()


def test_a_wrapped_optimizer_shares_its_state(said):
    here, there = said["shared"]
    assert here == there and here[:2] == (1, 0.5)


def bits():
    values = fit(hvd.DistributedOptimizer, data(hvd.rank()), 4)
    return [value.tobytes() for value in values]


def test_two_runs_give_the_same_bits():
    (here, there), (again, _) = (run(bits, 2, tensorflow=True) for _ in range(2))
    assert here == there == again
