"""What operations of DDP and FSDP2 are called in the timeline."""

from functools import partial
from pathlib import Path

import pytest
import torch
from torch import distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import hvdtune.torch as hvd
from hvdtune.distributed.titles import Bucket, buckets_of
from hvdtune.timeline.reading.opening import open_trace
from tests.distributed import members

KINDS = ["ALLREDUCE", "ALLGATHER", "REDUCESCATTER", "BROADCAST"]
PARAMETERS = [("a.weight", 100, 400), ("a.bias", 10, 40), ("b.weight", 50, 200), ("b.bias", 5, 20)]


def test_arranged_buckets_are_those_of_the_log():
    log = {"has_rebuilt_buckets": 1, "rebuilt_per_bucket_param_indices": "3 2 1, 0"}
    assert buckets_of(log, PARAMETERS) == [
        Bucket("bucket 0: b.bias to a.bias", 65),
        Bucket("bucket 1: a.weight", 100),
    ]


def test_buckets_that_stay_as_they_were_are_filled_from_the_last_parameter_on():
    log = {"bucket_sizes": "220, 440", "iteration": 3}
    assert buckets_of(log, PARAMETERS) == [
        Bucket("bucket 0: b.bias to b.weight", 55),
        Bucket("bucket 1: a.bias to a.weight", 110),
    ]
    assert buckets_of({**log, "iteration": 2}, PARAMETERS) is None, "they may yet be arranged"
    assert buckets_of({**log, "bucket_sizes": "230, 430"}, PARAMETERS) == []


def train(wrap, folder: Path):
    """Three recorded steps of two layers, after what a wrapper needs to settle."""
    layers = nn.Sequential(nn.Linear(100, 100), nn.ReLU(), nn.Linear(100, 100))
    model = wrap(layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(8):
        if step == 5:
            hvd.start_timeline(folder / "trace.json")
        model(torch.ones(2, 100)).sum().backward()
        optimizer.step()
    hvd.stop_timeline()


def replicated(layers):
    return DistributedDataParallel(layers, bucket_cap_mb=0.03)


def replicated_with_unused(layers):
    return DistributedDataParallel(layers, bucket_cap_mb=0.03, find_unused_parameters=True)


def replicated_with_buffers(layers):
    layers[1] = nn.BatchNorm1d(100)
    return DistributedDataParallel(layers)


def sharded(layers):
    fully_shard(layers[2])
    return fully_shard(layers)


@pytest.mark.parametrize(
    ("wrap", "titles"),
    [
        (
            replicated,
            {"allreduce.bucket 0: 2.bias to 2.weight", "allreduce.bucket 1: 0.bias to 0.weight"},
        ),
        (
            replicated_with_unused,
            {
                "allreduce.bucket 0: 2.bias",
                "allreduce.bucket 1: 2.weight to 0.bias",
                "allreduce.bucket 2: 0.weight",
            },
        ),
        (
            replicated_with_buffers,
            {
                "allreduce.bucket 0: 2.bias to 0.weight",
                "broadcast.buffers of float32",
                "broadcast.buffers of int64",
            },
        ),
        (
            sharded,
            {
                "allgather.2",
                "allgather.the outermost module",
                "reducescatter.2",
                "reducescatter.the outermost module",
            },
        ),
    ],
)
def test_the_timeline_names_what_torchs_wrappers_send(wrap, titles, tmp_path):
    members.run(Training(wrap, tmp_path), 2, tmp_path)
    trace = open_trace(tmp_path / "trace.json")
    told = trace.slices[trace.slices["name"].isin(KINDS)]
    for rank in (0, 1):
        named = told.loc[told["rank"] == rank, "tensor"].astype(str)
        counts = named[~named.str.contains(".torch.", regex=False)].value_counts()
        assert set(counts.index) == titles
        assert set(counts) <= {3, 6}, counts


class Training:
    """For a process of its own."""

    def __init__(self, wrap, folder):
        self._wrap, self._folder = wrap, folder

    def __call__(self, rank, size):
        train(self._wrap, self._folder)


def steps_in_hooks(rank, size, waits):
    """DDP whose hook averages a bucket, and has an optimizer step for its parameters."""
    torch.manual_seed(0)
    ddp = DistributedDataParallel(nn.Sequential(nn.Linear(9, 9), nn.Linear(9, 9)), bucket_cap_mb=0)
    optimizers = {each: torch.optim.SGD([each], lr=0.01) for each in ddp.parameters()}

    def step(future, bucket):
        for parameter, gradient in zip(bucket.parameters(), bucket.gradients(), strict=True):
            parameter.grad = gradient.clone()
            optimizers[parameter].step()
            parameter.grad = None
        return bucket.buffer()

    def hook(_, bucket):
        future = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
        if not waits:
            return future.then(partial(step, bucket=bucket))
        future.wait()
        stepped = torch.futures.Future()
        stepped.set_result(step(future, bucket))
        return stepped

    ddp.register_comm_hook(None, hook)
    for _ in range(8):
        ddp(torch.full((2, 9), rank + 1.0)).sum().backward()
    return sum(float(each.sum()) for each in ddp.parameters())


@pytest.mark.parametrize("waits", [True, False])
def test_an_optimizer_may_step_in_a_hook_of_ddp(waits, tmp_path):
    first, second = members.run(partial(steps_in_hooks, waits=waits), 2, tmp_path)
    assert first == second


def makes_one(rank, size, folder):
    hvd.start_timeline(folder / "trace.json")
    replicated_with_buffers(nn.Sequential(nn.Linear(9, 100), nn.ReLU()))
    hvd.stop_timeline()


def test_what_a_new_ddp_sends_has_a_name(tmp_path):
    members.run(partial(makes_one, folder=tmp_path), 2, tmp_path)
    named = set(open_trace(tmp_path / "trace.json").slices["tensor"].astype(str))
    firsts = {f"broadcast.first values of {dtype}" for dtype in ("float32", "int64")}
    assert firsts <= named
