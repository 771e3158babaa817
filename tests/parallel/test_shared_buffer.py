import os
import signal

import pytest
import torch

import hvdtune.torch as hvd
from hvdtune.core.rank import runtime
from hvdtune.errors import RankLostError
from tests.parallel.ranks import run, start

ELEMENTS = 300_007


def shared_tensor(elements):
    return torch.frombuffer(runtime.shared_buffer(4 * elements), dtype=torch.float32)


def reduce_the_same_in_both_kinds_of_memory():
    torch.manual_seed(hvd.rank())
    private = torch.randn(ELEMENTS)
    shared = shared_tensor(ELEMENTS)
    shared.copy_(private)
    mixed = shared_tensor(ELEMENTS) if hvd.rank() % 2 else torch.empty(ELEMENTS)
    mixed.copy_(private)
    for tensor in (private, shared, mixed):
        hvd.allreduce_(tensor, name="gradient")
    return [tensor.clone() for tensor in (private, shared, mixed)]


@pytest.mark.parametrize("size", [1, 2, 4])
def test_shared_memory_gives_the_same_bits(size):
    for private, shared, mixed in run(reduce_the_same_in_both_kinds_of_memory, size):
        assert torch.equal(private, shared)
        assert torch.equal(private, mixed)


def keep_a_tensor_after_shutdown():
    tensor = shared_tensor(1000)
    tensor.fill_(hvd.rank() + 1)
    hvd.allreduce_(tensor, op=hvd.Sum)
    hvd.shutdown()
    return tensor.add_(1).clone()


def test_a_tensor_outlives_the_runtime():
    for tensor in run(keep_a_tensor_after_shutdown, 2):
        assert torch.equal(tensor, torch.full((1000,), 4.0))


def reduce_until_killed():
    tensor = torch.ones(4_000_000)
    for step in range(1_000_000):
        if step == 3 and hvd.rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        hvd.allreduce_(tensor, name="gradient")


def test_a_rank_killed_among_large_reductions_is_named():
    with start(reduce_until_killed, 3) as job:
        outcomes = job.outcomes()
    for survivor in (0, 2):
        assert isinstance(outcomes[survivor].error, RankLostError)
        assert outcomes[survivor].error.rank == 1
