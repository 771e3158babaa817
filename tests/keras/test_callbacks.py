"""Callbacks in `fit`, models that are saved and loaded, and the steps on the timeline."""

import time

import keras
import numpy as np
import pytest

import hvdtune.keras as hvd
from hvdtune.errors import UsageError
from hvdtune.timeline import merge
from tests.parallel.bodies import Bodies
from tests.parallel.ranks import run

pytestmark = pytest.mark.timeout(300)
bodies = Bodies()
INPUTS, ANSWERS = np.ones((8, 2), "float32"), np.ones((8, 1), "float32")


def run_bodies():
    return bodies.run_all()


@pytest.fixture(scope="module")
def said():
    """Return the results of every body on the two ranks."""
    return bodies.of_every_rank(run_bodies, 2, tensorflow=True)


class Watch(keras.callbacks.Callback):
    """Notes what `look` sees after each batch, and logs at the end of epochs."""

    def __init__(self, look=lambda model: None):
        super().__init__()
        self.look, self.seen, self.logs = look, [], []

    def on_train_batch_end(self, batch, logs=None):
        self.seen.append(self.look(self.model))

    def on_epoch_end(self, epoch, logs=None):
        self.logs.append(dict(logs))


def make_model(optimizer, *, deferred=False, wrap=hvd.DistributedOptimizer, seed=None):
    keras.utils.set_random_seed(hvd.rank() if seed is None else seed)
    layers = [keras.layers.Dense(3, activation="tanh"), keras.layers.Dense(1)]
    model = keras.Sequential(layers if deferred else [keras.Input((2,)), *layers])
    model.compile(wrap(optimizer), loss="mse")
    return model


def fit(model, callbacks, **options):
    options = {"batch_size": 2, "epochs": 1, "verbose": 0, **options}
    return model.fit(INPUTS, ANSWERS, callbacks=callbacks, **options)


def weights(model):
    return [weight.numpy().tolist() for weight in model.variables + model.optimizer.variables]


@bodies
def broadcast():
    rows = {}
    for deferred in (False, True):
        model = make_model(keras.optimizers.Adam(0.1 * (1 + hvd.rank())), deferred=deferred)
        watch = Watch(weights)
        fit(model, [hvd.callbacks.BroadcastGlobalVariablesCallback(1), watch])
        rows[deferred] = watch.seen
    return rows


@pytest.mark.parametrize("deferred", [False, True])
def test_ranks_begin_with_the_root_s_weights_and_optimizer(said, deferred):
    here, there = (rows[deferred] for rows in said["broadcast"])
    assert here == there and len(here) == 4
    assert 0.2 in [pytest.approx(value) for value in here[0] if isinstance(value, float)]


class AtFirst(keras.callbacks.Callback):
    """Notes the weights that the first batch is computed with."""

    seen = None

    def on_train_batch_begin(self, batch, logs=None):
        self.seen = self.seen or [weight.numpy().tolist() for weight in self.model.weights]


@bodies
def first_batch():
    model = make_model(keras.optimizers.SGD(0.1))
    root_s = hvd.broadcast_object([weight.numpy().tolist() for weight in model.weights], 1)
    at_first = AtFirst()
    fit(model, [hvd.callbacks.BroadcastGlobalVariablesCallback(1), at_first])
    return at_first.seen == root_s


def test_the_first_batch_has_the_root_s_weights_though_the_optimizer_is_new(said):
    assert said["first_batch"] == [True, True]


@bodies
def kept():
    """A variable that is this rank's own."""
    model = make_model(keras.optimizers.SGD(0.0))
    own = model.layers[0].kernel
    callback = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    callback.register_local_var(own)
    before = own.numpy()
    fit(model, [callback])
    return np.array_equal(before, own.numpy()), model.layers[1].kernel.numpy().tolist()


def test_a_registered_variable_is_not_overwritten(said):
    (here, own), (there, root_s) = said["kept"]
    assert here and there and own == root_s


class Draw(keras.callbacks.Callback):
    """Notes what random layers and their generators are before each epoch but the first."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def on_epoch_begin(self, epoch, logs=None):
        if epoch > 0:
            states = [layer.seed_generator.state for layer in self.model.layers[:2]]
            numbers = [state.numpy().tolist() for state in states]
            ones = np.ones((1, 32), "float32")
            drawn = [np.array(layer(ones, training=True)) for layer in self.model.layers[:2]]
            for state, values in zip(states, numbers, strict=True):
                state.assign(values)
            self.seen.append((numbers, [values.tolist() for values in drawn]))


@bodies
def random_layers():
    """Every rank seeds alike, as scripts do, and trains twice; one generator is local then."""
    keras.utils.set_random_seed(0)
    layers = [keras.layers.Dropout(0.5), keras.layers.GaussianNoise(1.0), keras.layers.Dense(1)]
    model = keras.Sequential([keras.Input((32,)), *layers])
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse")
    local = layers[1].seed_generator.state
    rows = {"before": [layer.seed_generator.state.numpy().tolist() for layer in layers[:2]]}
    for name, own in {"first": [], "again": [local]}.items():
        draw, before = Draw(), local.numpy().tolist()
        send = hvd.callbacks.BroadcastGlobalVariablesCallback(0, local_variables=own)
        inputs = np.ones((4, 32), "float32")
        model.fit(inputs, inputs[:, :1], 2, epochs=2, verbose=0, callbacks=[send, draw])
        rows[name] = draw.seen[0]
        rows[name, "local"] = before[0], local.numpy().tolist()[0]
    rows["weights"] = [weight.numpy().tolist() for weight in layers[2].variables]
    return rows


def test_random_layers_differ_between_ranks_and_weights_do_not(said):
    here, there = said["random_layers"]
    assert here["before"] == there["before"] and here["weights"] == there["weights"]
    for layer in (0, 1):
        (states, drawn), (others, other) = here["first"], there["first"]
        assert drawn[layer] != other[layer]
        # The root's seeds are what they were, and all ranks have used theirs as often.
        assert states[layer] == [here["before"][layer][0], 2]
        assert others[layer][0] != states[layer][0] and others[layer][1] == 2
        # The second training draws on with the same seeds.
        for rows in (here, there):
            assert rows["again"][0][layer] == [rows["first"][0][layer][0], 6]


def test_a_local_generator_stays(said):
    for rows in said["random_layers"]:
        before, after = rows["again", "local"]
        assert before == after


@bodies
def averaged():
    model = make_model(keras.optimizers.SGD(0.0), wrap=lambda optimizer: optimizer)
    before, after = Watch(), Watch()
    fit(model, [before, hvd.callbacks.MetricAverageCallback(), after], epochs=2)
    return [log["loss"] for log in before.logs], [log["loss"] for log in after.logs]


@bodies
def validated():
    """Rank 0 alone validates."""
    model = make_model(keras.optimizers.SGD(0.0), wrap=lambda optimizer: optimizer)
    own = {"validation_data": (INPUTS, ANSWERS)} if hvd.rank() == 0 else {}
    with pytest.raises(UsageError) as caught:
        fit(model, [hvd.callbacks.MetricAverageCallback()], epochs=2, **own)
    return str(caught.value)


def test_validation_on_one_rank_is_refused_on_all(said):
    for message in said["validated"]:
        assert message == (
            "MetricAverageCallback: of 2 ranks only rank 0 reported val_loss. Pass the same "
            "metrics, validation_data and validation_freq to fit() on every rank."
        )


def test_metrics_are_the_mean_over_ranks(said):
    (here, mean), (there, other_mean) = said["averaged"]
    assert here != there
    assert mean == other_mean
    assert mean == pytest.approx([(a + b) / 2 for a, b in zip(here, there, strict=True)])


def rates(callbacks, epochs=3, **options):
    model = make_model(keras.optimizers.SGD(0.5, momentum=0.9))
    watch = Watch(lambda model: float(model.optimizer.learning_rate))
    history = fit(model, [*callbacks, watch], epochs=epochs, **options)
    return watch.seen, history.history.get("lr")


@bodies
def scheduled():
    schedule = hvd.callbacks.LearningRateScheduleCallback
    return {
        "staircase": rates([schedule(2.0, lambda epoch: 0.1**epoch)]),
        "window": rates([schedule(2.0, 0.5, start_epoch=1, end_epoch=2)]),
        "smooth": rates([schedule(2.0, lambda epoch: 1 + epoch, staircase=False)]),
        "warmup": rates([hvd.callbacks.LearningRateWarmupCallback(2.0, warmup_epochs=2)]),
    }


@pytest.mark.parametrize(
    ("name", "right"),
    [
        ("staircase", [2.0] * 4 + [0.2] * 4 + [0.02] * 4),
        ("window", [0.5] * 4 + [1.0] * 8),
        ("smooth", [2.0 * (1 + batch / 4) for batch in range(12)]),
        # From that of one rank, in eight batches, to that of two.
        ("warmup", [1.0 + batch / 8 for batch in range(1, 9)] + [2.0] * 4),
    ],
)
def test_learning_rates_follow_epochs_and_batches(said, name, right):
    for seen, of_epochs in (rows[name] for rows in said["scheduled"]):
        assert seen == pytest.approx(right)
        assert of_epochs == pytest.approx(right[3::4])


def descend(rates_of_steps, momentum, *, corrected):
    """A weight by https://arxiv.org/abs/1706.02677, of a gradient that is always 1: velocities
    have the learning rate in them, and change with it."""
    weight, velocity, former = 1.0, 0.0, rates_of_steps[0]
    for rate in rates_of_steps:
        ratio = rate / former if corrected else 1.0
        velocity = momentum * velocity * ratio - rate
        weight, former = weight + velocity, rate
    return weight


@bodies
def corrected():
    values = {}
    for correction in (True, False):
        model = keras.Sequential(
            [keras.Input((1,)), keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")]
        )
        model.compile(
            hvd.DistributedOptimizer(keras.optimizers.SGD(0.1, momentum=0.9)),
            loss=lambda _, out: out,
        )
        callback = hvd.callbacks.LearningRateScheduleCallback(
            0.1, lambda epoch: 1 + epoch, momentum_correction=correction
        )
        ones = np.ones((4, 1), "float32")
        model.fit(ones, ones, batch_size=2, epochs=3, verbose=0, callbacks=[callback])
        values[correction] = model.get_weights()[0].item()
    return values


@pytest.mark.parametrize("corrects", [True, False])
def test_velocities_change_with_the_learning_rate(said, corrects):
    steps = [0.1, 0.1, 0.2, 0.2, 0.3, 0.3]
    right, other = (descend(steps, 0.9, corrected=yes) for yes in (corrects, not corrects))
    assert abs(right - other) > 0.1
    for values in said["corrected"]:
        assert values[corrects] == pytest.approx(right, rel=1e-5)


@bodies
def unlike():
    """Rank 1 has a layer more; without the callback's look the ranks wait for each other's
    gradients."""
    sizes = [2] * (2 + hvd.rank())
    model = keras.Sequential([keras.Input((2,)), *map(keras.layers.Dense, sizes)])
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD()), loss="mse")
    with pytest.raises(UsageError) as caught:
        fit(model, [hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
    return str(caught.value)


def test_models_that_differ_are_refused_on_every_rank(said):
    assert said["unlike"] == [
        "the ranks' models differ: 4 to 6 variables with 12 to 18 elements in total; "
        f"rank {rank} has {own} elements. Build the same model on every rank"
        for rank, own in enumerate(("4 variables with 12", "6 variables with 18"))
    ]


@bodies
def misuse():
    messages = []
    rate = keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.9)
    for call in (
        lambda: hvd.callbacks.LearningRateScheduleCallback(None, 1.0),
        lambda: fit(
            make_model(keras.optimizers.SGD(rate)),
            [hvd.callbacks.LearningRateScheduleCallback(1.0, 0.5)],
        ),
    ):
        with pytest.raises(UsageError) as caught:
            call()
        messages.append(str(caught.value))
    return messages


@pytest.mark.parametrize(
    ("call", "advice"), [(0, "initial_lr is missing"), (1, "is a schedule; use a number")]
)
def test_misuse_is_a_sentence(said, call, advice):
    for messages in said["misuse"]:
        assert advice in messages[call]


def save_and_load(folder):
    """Trains on; rank 0's model is loaded on both."""
    path = folder / "model.keras"
    model = make_model(keras.optimizers.Adam(0.01), seed=0)
    best = hvd.callbacks.BestModelCheckpoint(monitor="loss")
    best.filepath = str(folder / f"best{hvd.rank()}.keras")
    fit(model, [best], epochs=2)
    if hvd.rank() == 0:
        model.save(path)
    hvd.allreduce(1.0, name="saved")
    loaded = hvd.load_model(path)
    same = weights(loaded) == weights(model)
    # Data of its own on each rank: weights stay the same only where gradients are combined.
    loaded.fit(INPUTS * (1 + hvd.rank()), ANSWERS, batch_size=2, verbose=0)
    plain = type(keras.models.load_model(best.filepath).optimizer).__name__
    return same, weights(loaded), int(loaded.optimizer.iterations.numpy()), plain


def test_a_loaded_model_goes_on_where_it_was_saved(tmp_path):
    here, there = run(save_and_load, 2, tmp_path, tensorflow=True)
    assert here == there
    assert here[0] and here[2:] == (12, "Adam")


def train():
    model = make_model(keras.optimizers.SGD(0.1))
    late = keras.callbacks.LambdaCallback(
        # Rank 0 waits for it.
        on_train_batch_begin=lambda *_, **_options: time.sleep(0.01 * hvd.rank())
    )
    for _ in range(2):
        hvd.allreduce(1.0, name="begin")
        fit(model, [late])


def test_each_batch_of_fit_is_one_step_of_the_timeline(tmp_path):
    run(train, 2, tensorflow=True, timeline=str(tmp_path / "rank-%r.hvt"))
    trace = merge(sorted(tmp_path.glob("*.hvt")))
    steps = trace.events[trace.events["kind"] == "STEP"]
    assert steps.groupby("rank").size().to_dict() == {0: 7, 1: 7}  # between eight marks
    blocked = trace.events[trace.events["kind"] == "BLOCKED"]
    # Not in every batch: on a busy machine rank 1 is there first now and then.
    assert (blocked["rank"] == 0).any()
