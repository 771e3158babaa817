"""What an operation raises is an error of hvdtune and one of TensorFlow, also from a graph."""

import pickle

import pytest
import tensorflow as tf

import hvdtune.tensorflow as hvd
from hvdtune import errors
from hvdtune.core.toolchain import op_library
from hvdtune.tensorflow import errors as both
from tests.parallel.bodies import Bodies

pytestmark = pytest.mark.timeout(300)
bodies = Bodies()

FAULTS = {
    "shapes": (
        lambda: hvd.allreduce(tf.ones([2 + hvd.rank()]), name="odd"),
        (errors.MismatchError, tf.errors.FailedPreconditionError),
    ),
    "dtypes": (
        lambda: hvd.allgather(tf.ones([2], [tf.int32, tf.int64][hvd.rank()]), name="odd"),
        (errors.MismatchError, tf.errors.FailedPreconditionError),
    ),
    "roots": (
        lambda: hvd.broadcast(tf.ones([2]), root_rank=hvd.rank(), name="odd"),
        (hvd.HorovodInternalError, tf.errors.FailedPreconditionError),
    ),
    "no such root": (
        lambda: hvd.broadcast(tf.ones([2]), root_rank=9, name="odd"),
        (errors.UsageError, ValueError, tf.errors.InvalidArgumentError),
    ),
    "no such dtype": (
        lambda: hvd.allreduce(tf.constant("text"), name="odd"),
        (errors.UsageError, ValueError, tf.errors.InvalidArgumentError),
    ),
    "too many rows": (
        lambda: hvd.alltoall(tf.ones([3]), splits=[3, 1], name="odd"),
        (errors.UsageError, ValueError, tf.errors.InvalidArgumentError),
    ),
    "no such operation": (
        lambda: hvd.allreduce(tf.ones([3]), op=99),
        (errors.UsageError, ValueError, tf.errors.InvalidArgumentError),
    ),
    "slices that are not added": (
        lambda: hvd.allreduce(tf.IndexedSlices(tf.ones([1, 2]), tf.constant([0])), op=hvd.Min),
        (errors.UsageError, NotImplementedError, tf.errors.InvalidArgumentError),
    ),
    "slices in a group": (
        lambda: hvd.grouped_allreduce(
            [tf.IndexedSlices(tf.ones([1, 2]), tf.constant([0]))], op=hvd.Adasum
        ),
        (errors.UsageError, NotImplementedError, tf.errors.InvalidArgumentError),
    ),
    "a sparse tensor": (
        lambda: hvd.allgather(tf.SparseTensor([[0]], [1.0], [3])),
        (errors.UsageError, NotImplementedError, tf.errors.InvalidArgumentError),
    ),
    "variables": (
        lambda: hvd.broadcast_variables([tf.Variable(tf.ones([2 + hvd.rank()]))], root_rank=0),
        (errors.MismatchError, tf.errors.FailedPreconditionError),
    ),
    "a variable that cannot be sent": (
        lambda: hvd.broadcast_variables(
            [tf.Variable(tf.ones([2])), tf.Variable(tf.cast([1], tf.uint32))], root_rank=0
        ),
        (errors.UsageError, ValueError, tf.errors.InvalidArgumentError),
    ),
    "objects": (
        lambda: hvd.broadcast_object(1, root_rank=9),
        (errors.UsageError, ValueError, tf.errors.InvalidArgumentError),
    ),
}
_EAGER = ("variables", "a variable that cannot be sent", "objects")
IN_GRAPHS = [name for name in FAULTS if name not in _EAGER]


def run_bodies():
    return bodies.run_all()


@pytest.fixture(scope="module")
def said():
    """Return the results of every body on the two ranks."""
    return bodies.of_every_rank(run_bodies, 2, tensorflow=True)


def missing(call, kinds):
    """Which of the kinds what the call raises is not; what it says, and of which tensor."""
    try:
        call()
    except Exception as error:
        lacks = [kind.__name__ for kind in kinds if not isinstance(error, kind)]
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again)) == (type(error), str(error))
        return lacks, str(error), getattr(error, "tensor", "")
    return [kind.__name__ for kind in kinds], "", ""


def in_a_branch(call):
    """A function that AutoGraph translates, whose errors it would replace by its own."""

    def step(x):
        if tf.reduce_sum(x) > 0:
            x = x * 2
        call()
        return x

    return lambda: tf.function(step)(tf.ones([1]))


@bodies
def eagerly():
    return {name: missing(call, kinds) for name, (call, kinds) in FAULTS.items()}


@bodies
def in_graphs():
    return {name: missing(in_a_branch(FAULTS[name][0]), FAULTS[name][1]) for name in IN_GRAPHS}


@pytest.mark.parametrize("name", FAULTS)
def test_an_error_can_be_caught_as_hvdtune_s_and_as_tensorflow_s(said, name):
    for lacks, sentence, _ in (rows[name] for rows in said["eagerly"]):
        assert lacks == []
        assert len(sentence) > 25 and "\n" not in sentence
        assert "function_node" not in sentence and "[Op:" not in sentence


@bodies
def one_errs():
    """Rank 1 alone; what comes after that without a name either is the same on both ranks."""
    wrong = hvd.rank() == 1
    said = []
    for call in (
        lambda: hvd.allreduce(tf.constant(["text"]) if wrong else tf.ones([1])),
        lambda: hvd.broadcast(tf.ones([2]), root_rank=9 if wrong else 0),
        lambda: hvd.alltoall(tf.ones([4]), splits=[3, 3] if wrong else [2, 2]),
    ):
        with pytest.raises((errors.UsageError, errors.MismatchError)) as caught:
            call()
        sums = [float(hvd.allreduce(tf.ones([1]) * n, op=hvd.Sum)[0]) for n in range(3)]
        said.append((isinstance(caught.value, errors.MismatchError), str(caught.value), sums))
    return said


def test_who_takes_no_part_in_an_operation_without_a_name_tells_the_others(said):
    for rank, rows in enumerate(said["one_errs"]):
        for is_mismatch, sentence, sums in rows:
            assert sums == [0.0, 2.0, 4.0]
            assert is_mismatch == (rank == 0)
            assert rank == 1 or "rank 1 announced a call that raised an error there" in sentence


@bodies
def logged():
    """The payload that TensorFlow writes behind the message in its log."""
    with pytest.raises(errors.MismatchError) as caught:
        FAULTS["shapes"][0]()
    return caught.value.experimental_payloads[b"hvdtune"].decode()


def test_what_an_error_carries_for_hvdtune_can_be_read_in_tensorflow_s_log(said):
    assert said["logged"] == ["MismatchError at tensor allreduce.odd"] * 2


@pytest.mark.parametrize("name", IN_GRAPHS)
def test_so_can_an_error_of_a_graph(said, name):
    for (lacks, text, tensor), (_, sentence, eager_tensor) in (
        (graphs[name], eager[name])
        for graphs, eager in zip(said["in_graphs"], said["eagerly"], strict=True)
    ):
        assert lacks == []
        assert sentence in text  # after where in the graph it was
        assert tensor == eager_tensor


@bodies
def in_a_session():
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        odd = hvd.allreduce(tf.ones([2 + hvd.rank()]), name="odd")
        return missing(
            lambda: session.run(odd), (errors.MismatchError, tf.errors.FailedPreconditionError)
        )


def test_so_can_an_error_of_a_session(said):
    for lacks, text, _ in said["in_a_session"]:
        assert lacks == []
        assert "rank 1 announced" in text


@bodies
def others():
    """Errors of TensorFlow's own operations stay what they are."""
    found = []
    for call in (tf.strings.to_number, tf.function(tf.strings.to_number)):
        with pytest.raises(tf.errors.InvalidArgumentError) as caught:
            call(tf.constant("word"))
        found.append(isinstance(caught.value, errors.HvdtuneError))
    return found


def test_errors_of_other_operations_are_left_alone(said):
    assert said["others"] == [[False, False]] * 2


@pytest.mark.parametrize(
    "kind",
    [
        kind for kind in both.KINDS if kind is not errors.UnsupportedError
    ],  # which only Python raises
)
def test_a_kind_of_error_has_the_code_that_kernels_give_it(kind):
    """Kernels choose it by themselves."""
    (header,) = (path for path in op_library.sources() if path.name == "collective_kernel.h")
    choice = header.read_text().partition("error_of(")[2].partition(f'"{kind.__name__}"')[2]
    code = choice.partition("StatusCode::k")[2].partition(";")[0] if choice else "Unknown"
    assert issubclass(both.KINDS[kind], getattr(tf.errors, f"{code}Error"))
