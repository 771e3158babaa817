"""Tensors whose values are still on their way when the operation is asked for, as from a GPU."""

import threading
import time

import pytest
import torch

import hvdtune.torch as hvd
from hvdtune.core.rank import collectives
from hvdtune.core.rank.collectives import Reduction
from hvdtune.errors import DuplicateNameError, ShutdownError
from hvdtune.torch import gradients
from hvdtune.torch.adapter import TorchAdapter
from tests.parallel.ranks import run


class Slow(TorchAdapter):
    """A device whose values arrive when `arrive` is set; results go back through a copy."""

    def __init__(self):
        self.arrive = threading.Event()

    def copy_in(self, tensor):
        host = torch.full_like(tensor, float("nan"))

        def wait():
            assert self.arrive.wait(30)
            host.copy_(tensor)

        return host, wait

    def staging_output(self, output):
        return torch.empty_like(output)

    def copy_out(self, staged, output):
        output.copy_(staged)


def start(adapter, tensor, name):
    output = torch.zeros_like(tensor)
    return collectives.allreduce_async(
        adapter, [tensor], [output], name, Reduction(hvd.Sum), grouped=False
    )


def arrive_late():
    adapter = Slow()
    handles = [start(adapter, torch.tensor([float(i + hvd.rank())]), f"t{i}") for i in range(3)]
    assert not any(hvd.poll(handle) for handle in handles)
    prompt = hvd.allreduce(torch.ones(1), op=hvd.Sum)
    adapter.arrive.set()
    results = [hvd.synchronize(handle).item() for handle in handles]
    gathered = hvd.synchronize(
        collectives.allgather_async(adapter, [torch.tensor([float(hvd.rank())])], "g")
    )
    return results, prompt.item(), gathered[0].tolist()


def ask_twice():
    adapter = Slow()
    adapter.arrive.set()
    if hvd.rank() == 1:
        hvd.barrier()  # until rank 0 has seen that the first of the name is in flight
        return hvd.synchronize(start(adapter, torch.ones(1), "same")).item()
    handles = [start(adapter, torch.ones(1), "same") for _ in range(2)]
    with pytest.raises(DuplicateNameError, match="same"):
        hvd.synchronize(handles[1])
    hvd.barrier()
    return hvd.synchronize(handles[0]).item()


def leave_before():
    adapter = Slow()
    handle = start(adapter, torch.ones(1), "late")
    threading.Thread(target=lambda: (time.sleep(0.2), adapter.arrive.set())).start()
    hvd.shutdown()
    with pytest.raises(ShutdownError):
        hvd.synchronize(handle)


def train_late():
    gradients.ADAPTER = adapter = Slow()  # of this process, which ends
    weight = torch.nn.Parameter(torch.zeros(100, 100))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0))
    for step in range(3):
        adapter.arrive.clear()
        optimizer.zero_grad()
        later = threading.Timer(0.05, adapter.arrive.set)
        later.start()
        (weight * (hvd.rank() + 1.0)).sum().backward()
        assert adapter.arrive.is_set() or step > 0  # then it is read where it lies
        later.join()
        optimizer.step()
    return weight.unique().tolist()


@pytest.mark.parametrize(
    ("body", "values"),
    [
        pytest.param(arrive_late, [([1.0, 3.0, 5.0], 2.0, [0.0, 1.0])] * 2, id="others-go-on"),
        pytest.param(ask_twice, [2.0, 2.0], id="synchronize-raises-what-submission-raised"),
        pytest.param(leave_before, [None], id="shutdown-ends-what-was-not-submitted"),
        pytest.param(train_late, [[-4.5], [-4.5]], id="an-optimizer-waits-for-gradients"),
    ],
)
def test_values_that_come_late(body, values):
    assert run(body, len(values)) == values
