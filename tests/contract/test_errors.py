"""What goes wrong is said in a sentence, on every rank that it concerns, and ends nothing else."""

import numpy as np
import pytest

from hvdtune.errors import DuplicateNameError, HorovodInternalError, MismatchError, UsageError
from tests.contract.calls import MOVED
from tests.contract.framework import BY_NAME, FRAMEWORKS, run
from tests.parallel import ranks


def sentences(calls, error=UsageError):
    """Return the message of the error that each call raises."""
    said = []
    for call in calls:
        with pytest.raises(error) as caught:
            call()
        said.append(str(caught.value))
        assert len(said[-1]) > 25 and "\n" not in said[-1]
    return said


def still_works(framework):
    hvd = framework.hvd
    one = framework.tensor(np.ones(1), "float32")
    return framework.wide(hvd.allreduce(one, op=hvd.Sum, name="after")).item()


def disagree(name):
    framework = BY_NAME[name]
    hvd = framework.hvd
    odd = hvd.rank() == 1

    def ones(*shape, dtype="float32"):
        return framework.tensor(np.ones(shape), dtype)

    def grouped():
        return hvd.grouped_allreduce([ones(2), ones(4 if odd else 3)], name="group")

    rows = []
    for call in (
        lambda: hvd.allreduce(ones(3 if odd else 2), name="grad"),
        lambda: hvd.allreduce(ones(2, dtype="float64" if odd else "float32"), name="grad"),
        lambda: hvd.allreduce(ones(2), op=hvd.Max if odd else hvd.Sum, name="grad"),
        lambda: (hvd.allgather if odd else hvd.allreduce)(ones(2), name="grad"),
        lambda: hvd.allgather(ones(1, 3 if odd else 2), name="grad"),
        lambda: hvd.broadcast(ones(2), root_rank=int(odd), name="grad"),
        lambda: hvd.broadcast(ones(2, dtype=MOVED[odd]), root_rank=0, name="grad"),
        lambda: hvd.reducescatter(ones(3 if odd else 2), name="grad"),
        grouped,
    ):
        with pytest.raises(MismatchError) as caught:
            call()
        assert isinstance(caught.value, HorovodInternalError | RuntimeError)
        rows.append((str(caught.value), caught.value.tensor))
    return rows, still_works(framework)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_ranks_that_disagree_about_a_tensor_are_told_so_on_every_rank(framework):
    for rows, after in run(disagree, 3, framework):
        for sentence, tensor in rows:
            assert tensor.split(".")[1] in ("grad", "group")
            assert "rank 1 announced" in sentence
            assert "ranks 0, 2 announced" in sentence or "rank 0 announced" in sentence
        assert after == 3.0


def misuse(name):
    framework = BY_NAME[name]
    hvd = framework.hvd
    rows, scalar = (
        framework.tensor(np.ones((3, 2)), "float32"),
        framework.tensor(np.ones(()), "float32"),
    )
    integers, flags = framework.tensor(np.ones(2), "int32"), framework.tensor(np.ones(2), "bool")
    small = framework.tensor(np.ones(2), "float8_e5m2")
    expected = {
        "add up to": lambda: hvd.alltoall(rows, splits=[1, 1]),
        "each of 2 ranks": lambda: hvd.alltoall(rows, splits=[3]),
        "[4, -1]": lambda: hvd.alltoall(rows, splits=[4, -1]),
        "must be integers": lambda: hvd.alltoall(rows, splits=[1.5, 1.5]),
        "evenly": lambda: hvd.alltoall(rows),
        "alltoall needs": lambda: hvd.alltoall(scalar),
        "reducescatter needs": lambda: hvd.reducescatter(scalar),
        "not Adasum": lambda: hvd.reducescatter(rows, op=hvd.Adasum),
        "at least one dim": lambda: hvd.allgather(scalar),
        "int32": lambda: hvd.allreduce(integers, op=hvd.Adasum),
        "bool": lambda: hvd.allreduce(flags),
        "float8_e5m2 cannot be reduced": lambda: hvd.allreduce(small),
        "float8_e5m2 cannot": lambda: hvd.reducescatter(small),
        "op=99": lambda: hvd.allreduce(rows, op=99),
        "is needed" if name == "torch" else "string": lambda: hvd.allreduce("text"),
        "root rank 9": lambda: hvd.broadcast(rows, 9),
        "not None": lambda: hvd.broadcast(rows, None),
        "not 0.5": lambda: hvd.broadcast(rows, 0.5),
        "root rank 1099511627776": lambda: hvd.broadcast(rows, 2**40),
        "name must be text": lambda: hvd.allreduce(rows, name="\ud800"),
        "prescale_factor": lambda: hvd.allreduce(rows, op=hvd.Sum, prescale_factor=None),
        "postscale_factor": lambda: hvd.allreduce(rows, postscale_factor=float("nan")),
        "list": lambda: hvd.grouped_allreduce(rows),
        "list of": lambda: hvd.grouped_allgather([] if name == "torch" else rows),
    }
    said = dict(zip(expected, sentences(expected.values()), strict=True))
    return [(part, text) for part, text in said.items() if part not in text], still_works(framework)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_misuse_is_refused_before_anything_is_sent(framework):
    assert run(misuse, 2, framework) == [([], 2.0)] * 2


def misuse_sets(name):
    framework = BY_NAME[name]
    hvd = framework.hvd
    one = framework.tensor(np.ones(1), "float32")
    other = hvd.add_process_set([hvd.size() - 1])
    said = sentences(
        [
            lambda: hvd.ProcessSet([]),
            lambda: hvd.ProcessSet([1, 1]),
            lambda: hvd.ProcessSet(3),
            lambda: hvd.ProcessSet(["a"]),
            lambda: hvd.ProcessSet([0.5, 1]),
            lambda: hvd.add_process_set([0, 9]),
            lambda: hvd.add_process_set(list(range(hvd.size()))),
            lambda: hvd.add_process_set([hvd.size() - 1]),
            lambda: hvd.allreduce(one, process_set=hvd.ProcessSet([0])),
            lambda: hvd.allreduce(one, process_set=7),
            lambda: (
                hvd.allreduce(one, process_set=other) if hvd.rank() == 0 else hvd.ProcessSet([])
            ),
            lambda: other.rank() if hvd.rank() == 0 else hvd.ProcessSet([]),
        ]
    )
    assert hvd.remove_process_set(other)
    said += sentences([lambda: hvd.allreduce(one, process_set=other)])
    with pytest.raises(MismatchError):
        hvd.add_process_set([hvd.rank()])
    assert hvd.remove_process_set(hvd.global_process_set) is False
    return said, still_works(framework)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_misuse_of_process_sets_is_refused(framework):
    for said, after in run(misuse_sets, 2, framework):
        text = "\n".join(said)
        for part in ("at least one rank", "a rank twice", "rank numbers", "a job of 2 ranks"):
            assert part in text
        assert "not registered" in said[-1]
        assert after == 2.0


def name_twice():
    framework = FRAMEWORKS["torch"]
    hvd = framework.hvd
    one = framework.tensor(np.ones(1), "float32")
    said = ""
    handle = hvd.allreduce_async(one, name="twice")
    if hvd.rank() == 0:
        with pytest.raises(DuplicateNameError) as duplicate:
            hvd.allreduce_async(one, name="twice")
            hvd.allreduce_async(one, name="twice")
        said = str(duplicate.value)
    hvd.barrier()
    hvd.synchronize(handle)
    return said, sentences([lambda: hvd.synchronize(handle), lambda: hvd.poll(handle)])


def test_a_name_in_flight_and_a_handle_that_has_ended_are_refused():
    for rank, (duplicate, ended) in enumerate(ranks.run(name_twice, 2)):
        assert ("allreduce.twice" in duplicate) is (rank == 0)
        assert all("synchronized before" in sentence for sentence in ended)
