"""Gradients of tapes are those of one process on the joined batch."""

import numpy as np
import pytest
import tensorflow as tf

import hvdtune.tensorflow as hvd
from hvdtune.core.rank import runtime
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


def random(*shape, seed, dtype="float32"):
    return tf.constant(np.random.default_rng(seed).standard_normal(shape), dtype)


def make_variables(dtype="float32"):
    """A large matrix, small rows, and one that no output depends on."""
    return [
        tf.Variable(random(40, 300, seed=1, dtype=dtype), name="large"),
        tf.Variable(random(300, 3, seed=2, dtype=dtype) / 10, name="small"),
        tf.Variable(random(3, seed=3, dtype=dtype), name="bias"),
        tf.Variable(random(2, seed=4, dtype=dtype), name="idle"),
    ]


def batch(rank, dtype="float32"):
    return random(8, 40, seed=10 + rank, dtype=dtype)


def joined(dtype="float32"):
    return tf.concat([batch(0, dtype), batch(1, dtype)], axis=0)


def loss_of(variables, rows):
    large, small, bias, _ = variables
    return tf.reduce_mean(tf.square(tf.tanh(rows @ large) @ small + bias))


def train(wrap, rows, *, in_graph, dtype="float32", steps=4, variables=None):
    """Values after some steps of momentum's, whose gradients `wrap` gives from a tape."""
    variables = variables or make_variables(dtype)
    velocities = [tf.Variable(tf.zeros_like(variable)) for variable in variables]

    def step():
        with tf.GradientTape() as tape:
            loss = loss_of(variables, rows)
        gradients = wrap(tape).gradient(loss, variables)
        for variable, velocity, gradient in zip(variables, velocities, gradients, strict=True):
            if gradient is not None:
                velocity.assign(0.9 * velocity + gradient)
                variable.assign_sub(0.05 * velocity)

    run_step = tf.function(step) if in_graph else step
    for _ in range(steps):
        run_step()
    return [variable.numpy() for variable in variables]


def distance(values, others):
    """The largest, relative to the largest value."""
    rows = zip(values, others, strict=True)
    return max(np.abs(a - b).max() / np.abs(b).max() for a, b in rows)


@bodies
def trained():
    far = {}
    for dtype in TOLERANCE:
        alone = train(lambda tape: tape, joined(dtype), in_graph=True, dtype=dtype)
        for in_graph in (True, False):
            values = train(
                hvd.DistributedGradientTape,
                batch(hvd.rank(), dtype),
                in_graph=in_graph,
                dtype=dtype,
            )
            far[dtype, in_graph] = distance(values, alone)
    return far


@pytest.mark.parametrize("in_graph", [True, False])
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_two_ranks_train_as_one_process_does_on_all_data(said, dtype, in_graph):
    for far in said["trained"]:
        assert far[dtype, in_graph] <= TOLERANCE[dtype]


OPTIONS = {
    "predivided": lambda variables: {"gradient_predivide_factor": 4.0},
    "one group": lambda variables: {"groups": 1},
    "two groups": lambda variables: {"groups": 2},
    "many groups": lambda variables: {"groups": 50},
    "lists": lambda variables: {"groups": [[variables[0], variables[2]], [variables[1]]]},
    "half": lambda variables: {"compression": hvd.Compression.fp16},
}


@bodies
def with_options():
    alone = train(lambda tape: tape, joined(), in_graph=True)
    rows = {}
    for name, options_of in OPTIONS.items():
        for in_graph in (True, False):
            variables = make_variables()
            options = options_of(variables)
            values = train(
                lambda tape, options=options: hvd.DistributedGradientTape(tape, **options),
                batch(hvd.rank()),
                in_graph=in_graph,
                variables=variables,
            )
            rows[name, in_graph] = distance(values, alone)
    return rows


@pytest.mark.parametrize("in_graph", [True, False])
@pytest.mark.parametrize("name", OPTIONS)
def test_options_change_how_gradients_travel_and_not_what_is_trained(said, name, in_graph):
    for rows in said["with_options"]:
        far = rows[name, in_graph]
        assert far <= (2e-3 if name == "half" else 1e-6)
        assert far > 1e-6 or name != "half"  # so it did travel in halves


@bodies
def counted():
    counts = []
    for in_graph in (True, False):
        for groups in (0, 1, 2, 3):
            variables = make_variables()

            def step(variables=variables, groups=groups):
                with tf.GradientTape() as tape:
                    loss = loss_of(variables, batch(hvd.rank()))
                return hvd.DistributedGradientTape(tape, groups=groups).gradient(loss, variables)

            step = tf.function(step) if in_graph else step
            step()
            hvd.barrier()
            before = runtime.native().counts()["tensors"]
            step()
            counts.append(runtime.native().counts()["tensors"] - before)
            hvd.barrier()
    return counts


def lookups(rank):
    return tf.constant([[0, 3, 3, 7], [5, 3, 0, 1]][rank])


def embed(wrap, words, **options):
    """The gradient of a table of which rows are looked up, as a tape gives it and made dense."""
    table = tf.Variable(random(9, 4, seed=5, dtype="float64"))
    out = tf.Variable(random(4, 1, seed=6, dtype="float64"))

    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(tf.nn.embedding_lookup(table, words) @ out))
        return wrap(tape, **options).gradient(loss, [table, out])

    rows = []
    for call in (tf.function(step), step):
        of_table, of_out = call()
        kind = "sparse" if isinstance(of_table, tf.IndexedSlices) else "dense"
        rows.append((kind, tf.convert_to_tensor(of_table).numpy(), of_out.numpy()))
    return rows


@bodies
def sparsely():
    words = lookups(hvd.rank())
    both = tf.concat([lookups(0), lookups(1)], axis=0)
    (_, *right), _ = embed(lambda tape: tape, both)
    found = []
    for options in (
        {},
        {"sparse_as_dense": True},
        {"gradient_predivide_factor": 2.0},
        {"op": hvd.Sum},
    ):
        for kind, *values in embed(hvd.DistributedGradientTape, words, **options):
            if options.get("op") == hvd.Sum:
                values = [value / 2 for value in values]
            found.append((kind, distance(values, right)))
    return found


def test_looked_up_rows_are_gathered_or_made_dense(said):
    for found in said["sparsely"]:
        assert [kind for kind, _ in found] == ["sparse"] * 2 + ["dense"] * 2 + ["sparse"] * 4
        assert all(far <= 1e-12 for _, far in found)


@bodies
def in_a_set():
    alone = hvd.add_process_set([1])
    values = []
    for in_graph in (True, False):
        trained = train(
            lambda tape: hvd.DistributedGradientTape(tape, process_set=alone),
            batch(hvd.rank()),
            in_graph=in_graph,
        )
        right = train(lambda tape: tape, batch(hvd.rank()), in_graph=in_graph)
        values.append(distance(trained, right))
    hvd.remove_process_set(alone)
    return values


@bodies
def partly():
    """The first layer is this rank's own."""
    rows = []
    for in_graph in (True, False):
        for scale in (True, False):
            first = tf.keras.layers.Dense(4, use_bias=False, kernel_initializer="ones")
            second = tf.keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")
            inputs = tf.fill([1, 2], 1.0 + hvd.rank())
            second(first(inputs))

            def step(first=first, second=second, inputs=inputs, scale=scale):
                with tf.GradientTape() as tape:
                    out = second(first(inputs))
                tape = hvd.PartialDistributedGradientTape(
                    tape, local_layers=[first], scale_local_gradients=scale
                )
                return tape.gradient(out, [first.kernel.value, second.kernel.value])

            step = tf.function(step) if in_graph else step
            rows.append([gradient.numpy().flat[0].item() for gradient in step()])
    return rows


@bodies
def registered():
    variable, other = tf.Variable(1.0), tf.Variable(1.0)
    with tf.GradientTape(persistent=True) as tape:
        loss = (variable + other) * (1.0 + hvd.rank())
    wrapped = hvd.DistributedGradientTape(tape, op=hvd.Sum)
    wrapped.register_local_source(variable)
    gradients = wrapped.gradient(loss, {"own": variable, "other": other})
    local, others = wrapped.get_local_and_global_gradients(loss, [variable, other])
    assert [local[0][0] is variable, others[0][0] is other] == [True, True]
    pairs = [[gradient.numpy().item() for _, gradient in part] for part in (local, others)]
    return {name: g.numpy().item() for name, g in gradients.items()}, pairs


@bodies
def sparse_and_local():
    """The table is this rank's own, and its gradient has the looked up rows only."""
    found = []
    for in_graph in (True, False):
        for scale in (True, False):
            table, out = tf.Variable(tf.ones([9, 2])), tf.Variable(tf.ones([2, 1]))

            def step(table=table, out=out, scale=scale):
                with tf.GradientTape() as tape:
                    loss = tf.reduce_sum(tf.nn.embedding_lookup(table, [0, 3]) @ out)
                tape = hvd.DistributedGradientTape(tape, scale_local_gradients=scale)
                tape.register_local_source(table)
                return tape.gradient(loss, [table, out])

            of_table, _ = (tf.function(step) if in_graph else step)()
            assert isinstance(of_table, tf.IndexedSlices)
            found.append((of_table.indices.numpy().tolist(), of_table.values.numpy().tolist()))
    return found


@bodies
def wrapped_while_recording():
    """In the block of its `with`, and as the context manager itself; twice with other options."""
    variable = tf.Variable(1.0)
    with tf.GradientTape(persistent=True) as tape:
        inside = hvd.DistributedGradientTape(tape)
        added = hvd.DistributedGradientTape(tape, op=hvd.Sum)
        loss = variable * (1.0 + hvd.rank())
    with hvd.DistributedGradientTape(tf.GradientTape()) as around:
        again = variable * (1.0 + hvd.rank())
    with tf.GradientTape() as tape:
        tape = hvd.DistributedGradientTape(tape)
        once = variable * (1.0 + hvd.rank())
    asked = ((inside, loss), (added, loss), (around, again), (tape, once))
    return [each.gradient(target, variable).numpy().item() for each, target in asked]


@bodies
def of_other_names():
    """Ranks that call their variables differently agree by their positions."""
    variable = tf.Variable(1.0, name=f"of_rank{hvd.rank()}x")
    with tf.GradientTape() as tape:
        loss = variable * (1.0 + hvd.rank())
    tape = hvd.DistributedGradientTape(tape)
    found = [tape.gradient(loss, [variable], use_generic_names=True)[0]]
    own = [tf.constant(1.0 + hvd.rank())]
    found += tape._allreduce_grads(own)
    return [gradient.numpy().item() for gradient in found]


@bodies
def twice_in_a_graph():
    """Two tapes over the same variables, and one that is asked twice."""
    variable = tf.Variable(2.0)

    @tf.function
    def gradients():
        scale = 1.0 + float(hvd.rank())
        with tf.GradientTape() as first, tf.GradientTape(persistent=True) as second:
            square, cube = scale * variable**2, scale * variable**3
        second = hvd.DistributedGradientTape(second)
        rows = [hvd.DistributedGradientTape(first).gradient(square, variable)]
        return [*rows, second.gradient(cube, variable), second.gradient(square, variable)]

    return [gradient.numpy().item() for gradient in gradients()]


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        pytest.param(
            "counted",
            # In a graph the large one goes while the others are not there yet.
            [[2, 1, 2, 3, 1, 1, 2, 3]] * 2,
            id="groups-are-one-operation",
        ),
        pytest.param("in_a_set", [[0.0, 0.0]] * 2, id="only-a-process-set-combines"),
        pytest.param(
            "partly",
            [[[own / 2, 3.0], [own, 3.0]] * 2 for own in (1.0, 2.0)],
            id="gradients-of-local-layers-stay",
        ),
        pytest.param(
            "registered",
            [({"own": own, "other": 3.0}, [[own], [3.0]]) for own in (0.5, 1.0)],
            id="a-registered-source-stays-on-its-rank",
        ),
        pytest.param(
            "sparse_and_local",
            [[([0, 3], [[0.5] * 2] * 2), ([0, 3], [[1.0] * 2] * 2)] * 2] * 2,
            id="a-registered-source-may-have-sparse-gradients",
        ),
        pytest.param("wrapped_while_recording", [[1.5, 3.0, 1.5, 1.5]] * 2, id="while-recording"),
        pytest.param("of_other_names", [[1.5, 1.5]] * 2, id="positions-instead-of-names"),
        pytest.param("twice_in_a_graph", [[6.0, 18.0, 6.0]] * 2, id="tapes-of-one-graph"),
    ],
)
def test_what_a_tape_gives(said, body, wanted):
    assert said[body] == wanted


BAD = {
    "a tf.GradientTape is needed": lambda tape: hvd.DistributedGradientTape(None),
    "wrap it once": lambda tape: hvd.DistributedGradientTape(hvd.DistributedGradientTape(tape)),
    "must be a number of at least 0": lambda tape: hvd.DistributedGradientTape(tape, groups=-1),
    "a list of lists": lambda tape: hvd.DistributedGradientTape(tape, groups=[1]),
    "needs op=Average": lambda tape: hvd.DistributedGradientTape(
        tape, op=hvd.Sum, gradient_predivide_factor=2.0
    ),
    "use hvd.Average, Sum or Adasum": lambda tape: hvd.DistributedGradientTape(tape, op=hvd.Max),
    "takes an hvd.ProcessSet": lambda tape: hvd.DistributedGradientTape(tape, process_set=0),
    "compress and decompress": lambda tape: hvd.DistributedGradientTape(tape, compression="half"),
    "a RaggedTensor cannot be sent": lambda tape: hvd.allgather(tf.ragged.constant([[1.0], []])),
    "a SparseTensor cannot be sent": lambda tape: hvd.allreduce(tf.sparse.from_dense(tf.ones(2))),
    "not a Keras layer": lambda tape: hvd.PartialDistributedGradientTape(tape, local_layers=[1]),
}


@bodies
def refused():
    messages = []
    for call in BAD.values():
        with pytest.raises(UsageError) as caught:
            call(tf.GradientTape())
        messages.append(str(caught.value))
    with pytest.warns(DeprecationWarning, match="use groups"):
        hvd.DistributedGradientTape(tf.GradientTape(), num_groups=1)
    return messages


@pytest.mark.parametrize("part", BAD)
def test_bad_arguments_are_refused_in_a_sentence(said, part):
    for messages in said["refused"]:
        message = dict(zip(BAD, messages, strict=True))[part]
        assert part in message and "\n" not in message


def bits():
    values = train(hvd.DistributedGradientTape, batch(hvd.rank()), in_graph=True)
    return [value.tobytes() for value in values]


def test_two_runs_give_the_same_bits():
    (here, there), (again, _) = (run(bits, 2, tensorflow=True) for _ in range(2))
    assert here == there == again
