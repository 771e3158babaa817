"""Collectives that are captured into CUDA graphs, on a real GPU; ranks may share it."""

import gc
import os
import signal

import pytest
import torch

import hvdtune.torch as hvd
from hvdtune.errors import RankLostError, UsageError
from tests.gpu.on_gpu import BITS, NEEDS_GPU, run, start

pytestmark = NEEDS_GPU


def captured_collectives():
    tensor = torch.full((1000,), 1.0, device="cuda")
    pair = [torch.full((300,), 1.0, device="cuda"), torch.full((77,), 2.0, device="cuda")]
    rows = torch.ones(4, 3, device="cuda")

    def collectives():
        hvd.allreduce_(tensor, op=hvd.Sum, name="sum")
        hvd.grouped_allreduce_(pair, op=hvd.Average, prescale_factor=2.0, name="pair")
        parts = hvd.reducescatter(rows, op=hvd.Sum, name="rows")
        return parts, hvd.broadcast(tensor * (hvd.rank() + 1), root_rank=0, name="root")

    collectives()
    torch.cuda.synchronize()
    tensor.fill_(1.0)
    pair[0].fill_(1.0)
    graph = hvd.CUDAGraph()
    with torch.cuda.graph(graph):
        parts, told = collectives()
    assert tensor[0].item() == 1.0  # nothing has run yet
    for _ in range(3):
        graph.replay()
    other = hvd.allreduce(tensor, op=hvd.Max, name="eager")  # after the replays
    graph.replay()
    graph.synchronize()
    values = [tensor, pair[0], parts, told, other]
    return [value.cpu().flatten()[0].item() for value in values]


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("size", [1, 2])
def test_captured_collectives_run_at_each_replay(size, bits):
    for tensor, pair, parts, told, other in run(captured_collectives, size, gpu_bits=bits):
        assert tensor == size**4
        assert pair == 2.0**4
        assert parts == size
        assert told == size**4
        assert other == size**3


def model_and_optimizer():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
    model = model.cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    named = model.named_parameters()
    return model, hvd.DistributedOptimizer(optimizer, named_parameters=named)


def train(captures, steps):
    """A training whose whole step is a CUDA graph, or is not, of the same batches."""
    model, optimizer = model_and_optimizer()
    generator = torch.Generator().manual_seed(hvd.rank())
    inputs = torch.zeros(16, 8, device="cuda")

    def step():
        optimizer.zero_grad(set_to_none=False)
        (model(inputs) - inputs.sum(1, keepdim=True)).pow(2).mean().backward()
        optimizer.step()

    def batch():
        inputs.copy_(torch.randn(16, 8, generator=generator))

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            batch()
            step()
    torch.cuda.current_stream().wait_stream(side)
    replay = step
    if captures:
        graph = hvd.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        replay = graph.replay
    for _ in range(steps):
        batch()
        replay()
    if captures:
        graph.synchronize()
    return [parameter.detach().cpu() for parameter in model.parameters()]


@pytest.mark.parametrize("bits", BITS)
def test_a_step_in_a_graph_trains_as_one_outside(bits):
    outside = run(train, 2, False, 50, gpu_bits=bits)
    inside = run(train, 2, True, 50, gpu_bits=bits)
    for here, there in zip(inside[0], inside[1], strict=True):
        assert torch.equal(here, there)
    for here, there in zip(inside[0], outside[0], strict=True):
        assert torch.allclose(here, there, rtol=1e-5, atol=1e-6)


def refusals():
    tensor = torch.ones(10, device="cuda")
    texts = []

    def refused(graph, collective):
        gc.collect()  # a graph that goes while another is captured spoils that one
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            other = tensor + 1
            with pytest.raises(UsageError) as refusal:
                collective(other)
            texts.append(str(refusal.value))

    refused(hvd.CUDAGraph(), lambda other: hvd.allreduce(other, name="inside"))
    hvd.allreduce(tensor, name="before")
    refused(torch.cuda.CUDAGraph(), lambda other: hvd.allreduce(other, name="inside"))
    refused(hvd.CUDAGraph(), lambda other: hvd.allgather(other, name="rows"))
    with pytest.raises(UsageError, match="nothing has been captured"):
        hvd.CUDAGraph().replay()
    return texts, hvd.allreduce(tensor, op=hvd.Sum, name="after").cpu().tolist()[0]


def test_what_no_graph_can_have_is_refused():
    (first, plain, rows), after = run(refusals, 1)[0]
    assert "its process set has no NCCL communicator yet" in first
    assert "use hvdtune.torch.CUDAGraph instead of torch.cuda.CUDAGraph" in plain
    assert "allgather is known only when it runs" in rows
    assert after == 1.0


def capture_beside_operations():
    """A graph without collectives, captured while some are in flight."""
    tensors = [torch.ones(3_000_000, device="cuda") for _ in range(5)]
    hvd.allreduce_(tensors[0], op=hvd.Max, name="first")
    inputs, side = torch.ones(100, device="cuda"), torch.cuda.Stream()
    for turn in range(20):
        handles = []
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            with torch.cuda.stream(side):
                handles += [
                    hvd.allreduce_async_(tensor, prescale_factor=1.5, name=f"{turn} {number}")
                    for number, tensor in enumerate(tensors)
                ]
            doubled = inputs * 2
        graph.replay()
        for handle in handles:
            hvd.synchronize(handle)
    return doubled.sum().item()


@pytest.mark.parametrize("size", [1, 2])
def test_operations_in_flight_do_not_disturb_a_capture(size):
    assert run(capture_beside_operations, size) == [200.0] * size


def replay_for_ever(victim):
    tensor = torch.ones(100_000, device="cuda")
    hvd.allreduce_(tensor, op=hvd.Max, name="max")
    graph = hvd.CUDAGraph()
    with torch.cuda.graph(graph):
        hvd.allreduce_(tensor, op=hvd.Max, name="max")
    for turn in range(1_000_000):
        if turn == 50 and hvd.rank() == victim:
            os.kill(os.getpid(), signal.SIGKILL)
        graph.replay()
        graph.synchronize()
    return "it went on without the other"


@pytest.mark.parametrize("victim", [0, 1])
def test_a_rank_that_is_killed_between_replays_is_named(victim):
    with start(replay_for_ever, 2, victim) as job:
        survivor = job.outcomes()[1 - victim]
    assert isinstance(survivor.error, RankLostError), survivor.trace
    assert survivor.error.rank == victim
