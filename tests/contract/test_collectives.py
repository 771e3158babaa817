"""Every collective of every framework, in real processes, against NumPy in float64."""

import itertools

import numpy as np
import pytest

from tests.contract.calls import (
    FLOATS,
    INTEGERS,
    MOVED,
    REDUCTIONS,
    Call,
    difference,
    expected,
    finish,
    start,
)
from tests.contract.framework import BY_NAME, FRAMEWORKS, WITH_GRAPHS, run
from tests.parallel import ranks

KINDS = ["allreduce", "allgather", "broadcast", "alltoall", "reducescatter"]
TWO_HOSTS = ["127.0.0.1", "127.0.0.1", "127.0.0.2", "127.0.0.2"]
PLACES = {"1": (1, None), "2": (2, None), "3": (3, None), "4": (4, None), "2x2": (4, TWO_HOSTS)}
# How many ranks there are is the core's affair, which every framework shares: with these numbers
# torch's tests say what TensorFlow's would.
AS_TORCH = [("3", "tensorflow"), ("4", "tensorflow"), ("3", "tf.function")]
SHAPES = [(), (0,), (1,), (5, 3), (7, 0, 2), (2, 3, 4), (40_001,)]


def variants(kind, ranks, in_place):
    """Every dtype, then every shape and flavour of one collective."""
    ops = {"allreduce": REDUCTIONS, "reducescatter": REDUCTIONS[:5]}.get(kind, ("Sum",))
    shapes = [shape for shape in SHAPES if shape or kind in ("allreduce", "broadcast")]
    moved = MOVED if len(ops) == 1 else ()
    for dtype, op in itertools.product((*FLOATS, *INTEGERS, "bool", *moved), ops):
        if (op == "Adasum" and dtype not in FLOATS) or (op == "Average" and dtype == "bool"):
            continue
        yield Call(kind, ranks, dtype=dtype, op=op, seed=7, root=ranks[-1])
    for seed, shape in enumerate(shapes):
        yield Call(kind, ranks, shape=shape, strided=True, seed=seed, root=ranks[-1])
        if kind not in ("broadcast", "alltoall"):
            yield Call(kind, ranks, shape=shape, tensors=3, seed=seed + 20)
        if kind in in_place:
            yield Call(kind, ranks, shape=shape, in_place=True, seed=seed + 40, root=ranks[0])
    if kind in ("allreduce", "reducescatter"):
        for dtype in FLOATS:
            yield Call(kind, ranks, dtype=dtype, op="Average", prescale=0.5, postscale=3.0)


def carry_out(name):
    framework = BY_NAME[name]
    hvd = framework.hvd
    everyone = tuple(range(hvd.size()))
    calls = [call for kind in KINDS for call in variants(kind, everyone, framework.in_place)]
    handles = framework.together(
        lambda: [
            start(call, f"c{i}", hvd.global_process_set, framework) for i, call in enumerate(calls)
        ]
    )
    problems = []
    for call, handle in zip(calls, handles, strict=True):
        results = finish(call, handle, framework)
        wanted = expected(call, hvd.rank())
        problem = results if isinstance(results, str) else ""
        problem = problem or difference(call, hvd.rank(), results, wanted, framework)
        if problem:
            problems.append((call, problem))
    return problems, len(calls)


@pytest.mark.parametrize(
    ("place", "framework"),
    [
        pytest.param(*each, marks=[pytest.mark.slow] if each in AS_TORCH else [])
        for each in itertools.product(PLACES, WITH_GRAPHS)
    ],
)
def test_a_collective_gives_what_its_definition_says(place, framework):
    size, hosts = PLACES[place]
    for problems, count in run(carry_out, size, framework, hosts=hosts):
        assert problems == []
        assert count >= 150


def in_sets(name):
    framework = BY_NAME[name]
    hvd = framework.hvd
    sets = [hvd.add_process_set([0, 1]), hvd.add_process_set(hvd.ProcessSet([3, 1, 2]))]
    problems = []
    for number, process_set in enumerate(s for s in sets if s.included()):
        for kind in KINDS:
            chosen = variants(kind, tuple(process_set.ranks), framework.in_place)
            for i, call in enumerate(chosen):
                handle = start(call, f"{kind}.{i}", process_set, framework)
                results = finish(call, handle, framework)
                wanted = expected(call, hvd.rank())
                problem = difference(call, hvd.rank(), results, wanted, framework)
                problems += [(number, call, problem)] if problem else []
    hvd.allgather_object(None)
    return problems


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_collective_in_a_process_set_is_among_its_ranks(framework):
    # Ranks 1 take part in two sets, under the same names.
    assert run(in_sets, 4, framework) == [[]] * 4


def come_and_go(name):
    framework = BY_NAME[name]
    hvd = framework.hvd
    low, high = hvd.add_process_set([0, 1]), hvd.add_process_set(hvd.ProcessSet([3, 1, 2]))
    places = [(s.process_set_id, s.size(), s.rank(), s.ranks) for s in (low, high) if s.included()]
    removed = [hvd.remove_process_set(low), hvd.remove_process_set(low)]
    again = hvd.add_process_set(low)
    return places, removed, again is low, high.process_set_id


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_process_sets_may_overlap_and_come_and_go(framework):
    rows = run(come_and_go, 4, framework)
    assert [len(row[0]) for row in rows] == [1, 2, 1, 1]
    assert rows[3][0] == [(2, 3, 2, [1, 2, 3])]
    for row in rows:
        assert row[1:] == ([True, False], True, 2)


def joined(name):
    framework = BY_NAME[name]
    hvd = framework.hvd

    def reduced(value, op):
        tensor = framework.tensor(np.array([value]), "float32")
        return framework.wide(hvd.allreduce(tensor, op=op)).item()

    counts = [2, 4, 1][hvd.rank()]
    sums = [reduced(1.0, hvd.Sum) for _ in range(counts)]
    return sums, int(hvd.join()), reduced(float(hvd.rank()), hvd.Average)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_ranks_with_less_data_join_early(framework):
    rows = run(joined, 3, framework)
    assert [row[0] for row in rows] == [[3.0, 2.0], [3.0, 2.0, 1.0, 1.0], [3.0]]
    assert [row[1:] for row in rows] == [(1, 1.0)] * 3


def after_a_join():
    """Return the errors of operations that rank 0 calls when rank 1 has joined."""
    hvd = FRAMEWORKS["torch"].hvd
    ones, errors = FRAMEWORKS["torch"].tensor(np.ones(2), "float32"), {}
    if hvd.rank() == 0:
        calls = {
            "allreduce": lambda: hvd.allreduce(ones, op=hvd.Sum),
            "allgather": lambda: hvd.allgather(ones),
            "broadcast": lambda: hvd.broadcast(ones, 0),
        }
        hvd.allreduce(ones, name="rank 1 has joined")
        for kind, call in calls.items():
            try:
                call()
            except hvd.HorovodInternalError as error:
                errors[kind] = str(error)
    hvd.join()
    hvd.allgather(ones)
    return errors


@pytest.mark.parametrize("rule", ["hvdtune", "horovod"])
def test_horovod_s_rule_refuses_all_but_allreduce_after_a_join(rule):
    errors, _ = ranks.run(after_a_join, 2, join_rule=rule)
    assert set(errors) == ({"allgather", "broadcast"} if rule == "horovod" else set())
    for error in errors.values():
        assert "is not allowed after the join of rank 1, as in Horovod; unset HVDTUNE_JOIN" in error


def join_again_and_again():
    hvd = FRAMEWORKS["torch"].hvd
    last = hvd.add_process_set([hvd.size() - 1])
    joined = [hvd.join(process_set=last) for _ in range(3)] if last.included() else []
    hvd.barrier()
    return joined


def test_a_set_without_rank_0_may_join_more_than_once():
    assert ranks.run(join_again_and_again, 3) == [[], [], [2, 2, 2]]


def splits_and_rows(name):
    framework = BY_NAME[name]
    hvd = framework.hvd
    rows = framework.tensor(np.arange(4 * hvd.size()).reshape(-1, 2), "int64")
    even = hvd.alltoall(rows)
    splits = framework.tensor(np.array([0] * (hvd.size() - 1) + [len(rows)]), "int32")
    output, received = hvd.alltoall(rows, splits=splits)
    return len(even), len(output), framework.wide(received).tolist(), framework.dtype(received)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_alltoall_tells_how_many_rows_came_from_each_rank(framework):
    assert run(splits_and_rows, 2, framework) == [
        (4, 0, [0, 0], "int32"),
        (4, 8, [4, 4], "int32"),
    ]


def any_order(name):
    framework = BY_NAME[name]
    hvd = framework.hvd
    calls = [Call(kind, (0, 1), seed=seed) for seed in range(10) for kind in KINDS]
    order = list(range(len(calls)))
    handles = {}
    for i in order if hvd.rank() == 0 else reversed(order):
        handles[i] = start(calls[i], f"c{i}", hvd.global_process_set, framework)
    results = [finish(call, handles[i], framework) for i, call in enumerate(calls)]
    right = [expected(call, hvd.rank()) for call in calls]
    rows = zip(calls, results, right, strict=True)
    return [p for c, r, w in rows if (p := difference(c, hvd.rank(), r, w, framework))]


@pytest.mark.parametrize("framework", ["torch"])  # those with functions that do not wait
def test_ranks_may_announce_in_any_order(framework):
    assert run(any_order, 2, framework) == [[], []]
