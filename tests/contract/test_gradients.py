"""Gradients of the collectives follow Horovod's rules, computed here with NumPy."""

import numpy as np
import pytest

from hvdtune.errors import UsageError
from tests.contract.calls import share
from tests.contract.framework import FRAMEWORKS, WITH_GRAPHS, run


def random(*seed, shape):
    return np.random.default_rng(seed).standard_normal(shape)


def weights(rank):
    """Return the function that makes rank `rank`'s incoming gradient of output `index`."""
    return lambda index, shape: random(7, rank, index, shape=shape)


class Rules:
    """On one rank: problems of every collective within one process set."""

    def __init__(self, framework, process_set):
        self.framework, self.hvd, self.set = framework, framework.hvd, process_set
        self.ranks, self.me = process_set.ranks, framework.hvd.rank()
        self.problems = []

    def check(self, label, function, inputs, expected):
        found = self.framework.gradients(function, inputs, weights(self.me))
        for index, (here, right) in enumerate(zip(found, expected, strict=True)):
            if here.shape != right.shape or not np.allclose(here, right, rtol=1e-12, atol=1e-14):
                self.problems.append((label, self.ranks, index, here, right))

    def mean(self, index, shape):
        return sum(weights(rank)(index, shape) for rank in self.ranks) / len(self.ranks)

    def allreduce(self, op, prescale, postscale):
        options = {"op": getattr(self.hvd, op), "process_set": self.set}
        options |= {"prescale_factor": prescale, "postscale_factor": postscale}
        factor = prescale * postscale * (len(self.ranks) if op == "Sum" else 1)
        shapes = [(3, 2), (), (0, 4)]
        inputs = [random(1, self.me, i, shape=shape) for i, shape in enumerate(shapes)]
        for i, shape in enumerate(shapes):
            self.check(
                f"allreduce {op}",
                lambda tensors: [self.hvd.allreduce(tensors[0], **options)],
                [inputs[i]],
                [self.mean(0, shape) * factor],
            )
        self.check(
            f"grouped_allreduce {op}",
            lambda tensors: self.hvd.grouped_allreduce(tensors, **options),
            inputs,
            [self.mean(i, shape) * factor for i, shape in enumerate(shapes)],
        )

    def allgather(self):
        rows = {rank: [position + 1, 2 * position] for position, rank in enumerate(self.ranks)}
        inputs = [random(2, self.me, i, shape=(n, 2)) for i, n in enumerate(rows[self.me])]
        expected = []
        for i, count in enumerate(rows[self.me]):
            begin = sum(rows[rank][i] for rank in self.ranks if rank < self.me)
            total = sum(rows[rank][i] for rank in self.ranks)
            expected.append(self.mean(i, (total, 2))[begin : begin + count])
        self.check(
            "grouped_allgather",
            lambda tensors: self.hvd.grouped_allgather(tensors, process_set=self.set),
            inputs,
            expected,
        )
        self.check(
            "allgather",
            lambda tensors: [self.hvd.allgather(tensors[0], process_set=self.set)],
            inputs[:1],
            expected[:1],
        )

    def broadcast(self):
        for root in self.ranks:
            mean = self.mean(0, (2, 3))
            self.check(
                f"broadcast from {root}",
                lambda tensors, root=root: [
                    self.hvd.broadcast(tensors[0], root, name=f"b{root}", process_set=self.set)
                ],
                [random(3, self.me, shape=(2, 3))],
                [mean if self.me == root else np.zeros_like(mean)],
            )

    def alltoall(self):
        # Position p sends 1 + p + q rows to position q.
        places = range(len(self.ranks))
        me = self.ranks.index(self.me)
        splits = [1 + me + q for q in places]
        expected = []
        for q in places:
            received = weights(self.ranks[q])(0, (sum(1 + p + q for p in places), 2))
            begin = sum(1 + p + q for p in range(me))
            expected.append(received[begin : begin + splits[q]])
        given = self.framework.tensor(np.array(splits), "int32")
        self.check(
            "alltoall",
            lambda tensors: [self.hvd.alltoall(tensors[0], given, process_set=self.set)[0]],
            [random(4, self.me, shape=(sum(splits), 2))],
            [np.concatenate(expected)],
        )
        even = (2 * len(self.ranks), 3)
        blocks = [weights(rank)(0, even)[2 * me : 2 * me + 2] for rank in self.ranks]
        self.check(
            "alltoall without splits",
            lambda tensors: [self.hvd.alltoall(tensors[0], process_set=self.set)],
            [random(5, self.me, shape=even)],
            [np.concatenate(blocks)],
        )

    def reducescatter(self, op, prescale, postscale):
        options = {"op": getattr(self.hvd, op), "process_set": self.set}
        options |= {"prescale_factor": prescale, "postscale_factor": postscale}
        size = len(self.ranks)
        factor = prescale * postscale * (size if op == "Sum" else 1)
        shapes = [(size + 1, 2), (2 * size,)]

        def gathered(index):
            rows, *rest = shapes[index]
            counts = [len(range(rows)[share(rows, p, size)]) for p in range(size)]
            parts = [weights(r)(index, (n, *rest)) for r, n in zip(self.ranks, counts, strict=True)]
            return np.concatenate(parts) * factor

        inputs = [random(6, self.me, i, shape=shape) for i, shape in enumerate(shapes)]
        self.check(
            f"grouped_reducescatter {op}",
            lambda tensors: self.hvd.grouped_reducescatter(tensors, **options),
            inputs,
            [gathered(0), gathered(1)],
        )
        self.check(
            f"reducescatter {op}",
            lambda tensors: [self.hvd.reducescatter(tensors[0], **options)],
            inputs[:1],
            [gathered(0)],
        )

    def check_all(self):
        for op, prescale, postscale in [("Average", 1, 1), ("Sum", 1, 1), ("Sum", 0.5, 3.0)]:
            self.allreduce(op, prescale, postscale)
            self.reducescatter(op, prescale, postscale)
        self.allgather()
        self.broadcast()
        self.alltoall()
        return self.problems


def all_rules(name):
    framework = WITH_GRAPHS[name]
    hvd = framework.hvd
    problems = Rules(framework, hvd.global_process_set).check_all()
    if hvd.size() > 1:
        upper = hvd.add_process_set(range(hvd.size() // 2, hvd.size()))
        if upper.included():
            problems += Rules(framework, upper).check_all()
        hvd.allreduce(framework.tensor(np.ones(1), "float32"), name="done")
    return problems


@pytest.mark.parametrize("framework", WITH_GRAPHS)
@pytest.mark.parametrize("size", [1, 2, pytest.param(4, marks=pytest.mark.slow)])
def test_gradients_of_collectives_follow_the_rules(framework, size):
    assert run(all_rules, size, framework) == [[]] * size


def without_rule(name):
    framework = FRAMEWORKS[name]
    hvd = framework.hvd
    messages = []
    for op in ("Min", "Max", "Product", "Adasum"):
        kinds = [hvd.allreduce] if op == "Adasum" else [hvd.allreduce, hvd.reducescatter]
        for kind in kinds:
            with pytest.raises(UsageError) as caught:
                framework.gradients(
                    lambda tensors, kind=kind, op=op: [
                        kind(tensors[0], name="loss", op=getattr(hvd, op))
                    ],
                    [np.ones((2, 2))],
                    weights(hvd.rank()),
                )
            messages.append(str(caught.value))
    return messages


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_gradient_without_a_rule_is_refused(framework):
    for messages in run(without_rule, 2, framework):
        assert len(messages) == 7
        assert "allreduce loss with op=Min has no gradient" in messages[0]
        assert "reducescatter loss with op=Product has no gradient" in messages[5]


def chain(name):
    framework = FRAMEWORKS[name]
    hvd = framework.hvd

    def chained(tensors):
        (x,) = tensors
        once = hvd.allreduce(x * x, op=hvd.Sum, name="chain.reduce")
        everyones = hvd.allgather(once + x, name="chain.gather")
        return [everyones, hvd.broadcast(x, 1, name="chain.broadcast")]

    values = random(8, hvd.rank(), shape=(2, 2))
    return framework.gradients(chained, [values], weights(hvd.rank()))[0]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_gradients_flow_through_chains_of_collectives(framework):
    found = run(chain, 2, framework)
    mean = sum(weights(rank)(0, (4, 2)) for rank in range(2)) / 2
    copied = sum(weights(rank)(1, (2, 2)) for rank in range(2)) / 2
    slices = [mean[:2], mean[2:]]
    for rank in range(2):
        x = random(8, rank, shape=(2, 2))
        right = (slices[0] + slices[1]) * 2 * x + slices[rank] + copied * (rank == 1)
        assert np.allclose(found[rank], right, rtol=1e-12)
