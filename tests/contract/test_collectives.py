"""Every collective of every framework, in real processes, against NumPy in float64."""

import itertools

import pytest
import torch

import hvdtune.torch as hvd
from hvdtune.errors import MismatchError, UsageError
from tests.contract.calls import (
    FLOATS,
    INTEGERS,
    REDUCTIONS,
    Call,
    difference,
    expected,
    finish,
    start,
)
from tests.contract.framework import FRAMEWORKS
from tests.parallel.ranks import run

TWO_HOSTS = ["127.0.0.1", "127.0.0.1", "127.0.0.2", "127.0.0.2"]
PLACES = {"1": (1, None), "2": (2, None), "3": (3, None), "4": (4, None), "2x2": (4, TWO_HOSTS)}
SHAPES = [(), (0,), (1,), (5, 3), (7, 0, 2), (2, 3, 4), (40_001,)]


def variants(kind, ranks):
    """Every dtype, then every shape and flavour of one collective."""
    ops = {"allreduce": REDUCTIONS, "reducescatter": REDUCTIONS[:5]}.get(kind, ("Sum",))
    shapes = [shape for shape in SHAPES if shape or kind in ("allreduce", "broadcast")]
    for dtype, op in itertools.product((*FLOATS, *INTEGERS, "bool"), ops):
        if (op == "Adasum" and dtype not in FLOATS) or (op == "Average" and dtype == "bool"):
            continue
        yield Call(kind, ranks, dtype=dtype, op=op, seed=7)
    for seed, shape in enumerate(shapes):
        yield Call(kind, ranks, shape=shape, strided=True, seed=seed, root=ranks[-1])
        if kind not in ("broadcast", "alltoall"):
            yield Call(kind, ranks, shape=shape, tensors=3, seed=seed + 20)
        if kind in ("allreduce", "broadcast"):
            yield Call(kind, ranks, shape=shape, in_place=True, seed=seed + 40, root=ranks[0])
    if kind in ("allreduce", "reducescatter"):
        for dtype in FLOATS:
            yield Call(kind, ranks, dtype=dtype, op="Average", prescale=0.5, postscale=3.0)


def carry_out(name, kind):
    framework = FRAMEWORKS[name]
    hvd = framework.hvd
    ranks = tuple(range(hvd.size()))
    calls = list(variants(kind, ranks))
    everyone = hvd.global_process_set
    handles = [start(c, f"c{i}", everyone, framework) for i, c in enumerate(calls)]
    problems = []
    for call, handle in zip(calls, handles, strict=True):
        results = finish(call, handle, framework)
        wanted = expected(call, hvd.rank())
        problem = results if isinstance(results, str) else ""
        problem = problem or difference(call, hvd.rank(), results, wanted, framework)
        if problem:
            problems.append((call, problem))
    return problems, len(calls)


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    "kind", ["allreduce", "allgather", "broadcast", "alltoall", "reducescatter"]
)
def test_a_collective_gives_what_its_definition_says(kind, place, framework):
    size, hosts = PLACES[place]
    for problems, count in run(carry_out, size, framework, kind, hosts=hosts):
        assert problems == []
        assert count >= 16


def in_sets():
    low, high = hvd.add_process_set([0, 1]), hvd.add_process_set(hvd.ProcessSet([3, 1, 2]))
    mine = [s for s in (low, high) if s.included()]
    sums = [
        hvd.allreduce(torch.tensor([1.0 + hvd.rank()]), op=hvd.Sum, process_set=s).item()
        for s in mine
    ]
    gathered = [hvd.allgather(torch.tensor([hvd.rank()]), process_set=s).tolist() for s in mine]
    sent = [hvd.broadcast(torch.tensor([hvd.rank()]), 1, process_set=s).item() for s in mine]
    places = [(s.process_set_id, s.size(), s.rank(), s.ranks) for s in mine]
    for s in mine:
        hvd.barrier(process_set=s)
    removed = [hvd.remove_process_set(low), hvd.remove_process_set(low)]
    with pytest.raises(UsageError, match="not registered"):
        hvd.allreduce(torch.ones(1), process_set=low)
    again = hvd.add_process_set(low)
    return sums, gathered, sent, places, removed, again is low, high.process_set_id


def test_process_sets_may_overlap_and_come_and_go():
    rows = run(in_sets, 4)
    assert [row[0] for row in rows] == [[3.0], [3.0, 9.0], [9.0], [9.0]]
    assert rows[1][1:3] == ([[0, 1], [1, 2, 3]], [1, 1])
    assert rows[3][3] == [(2, 3, 2, [1, 2, 3])]
    for row in rows:
        assert row[4:] == ([True, False], True, 2)


def misuse_sets():
    messages = []
    other = hvd.add_process_set([hvd.size() - 1])
    for call in (
        lambda: hvd.ProcessSet([]),
        lambda: hvd.ProcessSet([1, 1]),
        lambda: hvd.ProcessSet(3),
        lambda: hvd.add_process_set([0, 9]),
        lambda: hvd.add_process_set(list(range(hvd.size()))),
        lambda: hvd.add_process_set([hvd.size() - 1]),
        lambda: hvd.allreduce(torch.ones(1), process_set=hvd.ProcessSet([0])),
        lambda: hvd.allreduce(torch.ones(1), process_set=7),
    ):
        with pytest.raises(UsageError) as caught:
            call()
        messages.append(str(caught.value))
    if not other.included():
        with pytest.raises(UsageError) as caught:
            hvd.allreduce(torch.ones(1), process_set=other)
        messages.append(str(caught.value))
        with pytest.raises(UsageError, match="does not belong"):
            other.rank()
    hvd.remove_process_set(other)
    with pytest.raises(MismatchError):
        hvd.add_process_set([hvd.rank()])
    assert hvd.remove_process_set(hvd.global_process_set) is False
    return messages, hvd.allreduce(torch.ones(1), op=hvd.Sum).item()


def test_misuse_of_process_sets_is_refused_with_a_sentence():
    for messages, after in run(misuse_sets, 2):
        text = "\n".join(messages)
        for part in ("at least one rank", "each rank once", "rank numbers", "there are 2"):
            assert part in text
        assert after == 2.0


def joined():
    counts = [2, 4, 1][hvd.rank()]
    sums = [hvd.allreduce(torch.tensor([1.0]), op=hvd.Sum).item() for _ in range(counts)]
    last = hvd.join()
    means = hvd.allreduce(torch.tensor([float(hvd.rank())])).item()
    return sums, last, means


def test_ranks_with_less_data_join_early():
    rows = run(joined, 3)
    assert [row[0] for row in rows] == [[3.0, 2.0], [3.0, 2.0, 1.0, 1.0], [3.0]]
    assert [row[1:] for row in rows] == [(1, 1.0)] * 3


def join_again_and_again():
    last = hvd.add_process_set([hvd.size() - 1])
    joined = [hvd.join(process_set=last) for _ in range(3)] if last.included() else []
    hvd.barrier()
    return joined


def test_a_set_without_rank_0_may_join_more_than_once():
    assert run(join_again_and_again, 3) == [[], [], [2, 2, 2]]


def whole_or_not_at_all():
    shapes = [(2,), (3,) if hvd.rank() == 0 else (4,), (5,)]
    with pytest.raises(MismatchError) as caught:
        hvd.grouped_allreduce([torch.ones(shape) for shape in shapes], name="group")
    with pytest.raises(UsageError, match="list"):
        hvd.grouped_allreduce(torch.ones(2))
    with pytest.raises(UsageError, match="list"):
        hvd.grouped_allgather([])
    return str(caught.value), hvd.allreduce(torch.ones(1), op=hvd.Sum, name="after").item()


def test_a_group_in_which_one_tensor_differs_fails_as_a_whole():
    for message, after in run(whole_or_not_at_all, 2):
        assert "allreduce.group" in message
        assert after == 2.0


def misuse():
    messages = []
    rows = torch.ones(3, 2)
    for call in (
        lambda: hvd.alltoall(rows, splits=[1, 1]),
        lambda: hvd.alltoall(rows, splits=[3]),
        lambda: hvd.alltoall(rows, splits=[4, -1]),
        lambda: hvd.alltoall(rows, splits=torch.tensor([1.5, 1.5])),
        lambda: hvd.alltoall(rows),
        lambda: hvd.alltoall(torch.tensor(1.0)),
        lambda: hvd.reducescatter(torch.tensor(1.0)),
        lambda: hvd.reducescatter(rows, op=hvd.Adasum),
        lambda: hvd.allreduce(torch.ones(2, dtype=torch.int32), op=hvd.Adasum),
        lambda: hvd.allreduce(torch.ones(2, dtype=torch.bool)),
        lambda: hvd.allreduce_(torch.ones(4, 4).t()[1:]),
        lambda: hvd.broadcast_(torch.ones(4, 4).t()[1:], root_rank=0),
    ):
        with pytest.raises(UsageError) as caught:
            call()
        messages.append(str(caught.value))
    return messages


def test_misuse_is_refused_with_a_sentence_before_anything_is_sent():
    for messages in run(misuse, 2):
        assert len(set(messages)) >= 8
        for message in messages:
            assert len(message) > 30


def splits_and_rows():
    rows = torch.arange(4 * hvd.size()).reshape(-1, 2)
    even = hvd.alltoall(rows)
    assert isinstance(even, torch.Tensor)
    output, received = hvd.alltoall(rows, splits=[0] * (hvd.size() - 1) + [len(rows)])
    return even.shape[0], output.shape[0], received.tolist(), received.dtype


def test_alltoall_tells_how_many_rows_came_from_each_rank():
    assert run(splits_and_rows, 2) == [
        (4, 0, [0, 0], torch.int32),
        (4, 8, [4, 4], torch.int32),
    ]
