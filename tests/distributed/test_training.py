"""DistributedDataParallel over the backend hvdtune."""

import hashlib
import os
from functools import partial
from unittest import mock

import pytest
import torch
from torch import distributed as dist
from torch.distributed import _functional_collectives as functional
from torch.distributed import checkpoint
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from hvdtune.core.rank import runtime
from tests.distributed import members


def trained(bucket_cap_mb, width=64):
    """The gradients' digest after three steps on data that differs by rank, and the parameters."""
    torch.manual_seed(0)
    layers = [torch.nn.Linear(16, width), torch.nn.ReLU(), torch.nn.Linear(width, 8)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers), bucket_cap_mb=bucket_cap_mb)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    digest = hashlib.sha256()
    torch.manual_seed(dist.get_rank() + 1)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(5, 16)).square().mean().backward()
        for parameter in model.parameters():
            digest.update(parameter.grad.numpy().tobytes())
        optimizer.step()
    return digest.hexdigest(), [parameter.detach() for parameter in model.parameters()]


def body(rank, size):
    small, _ = trained(0.001)
    large, parameters = trained(25)
    everybody = [torch.empty(0)] * size
    dist.all_gather_object(everybody, parameters)
    for others in everybody:
        assert all(torch.equal(a, b) for a, b in zip(others, parameters, strict=True))
    return small, large


def test_ranks_agree_and_gradients_have_the_same_bits_whatever_the_buckets(tmp_path):
    digests = members.run(body, 3, tmp_path)
    assert len({digest for pair in digests for digest in pair}) == 1


WAYS = (
    {},
    {},  # as before: two runs are equal
    {"HVDTUNE_TRANSPORT": "tcp"},
    {"HVDTUNE_ALLREDUCE_ALGORITHM": "direct"},
    {"HVDTUNE_ALLREDUCE_ALGORITHM": "doubling", "HVDTUNE_TRANSPORT": "tcp"},
    {"HVDTUNE_ALLREDUCE_ALGORITHM": "chain", "HVDTUNE_CHUNK_BYTES": "65536"},
    {"HVDTUNE_FUSION_THRESHOLD_BYTES": "0", "HVDTUNE_CYCLE_TIME_MS": "3"},
)


def digests_of_all_ways(rank, size, folder):
    """Of one training in a group for each of WAYS, one after another."""
    digests = []
    for number, variables in enumerate(WAYS):
        dist.destroy_process_group()
        with mock.patch.dict(os.environ, variables):
            store = dist.FileStore(str(folder / f"store-{number}"), size)
            dist.init_process_group("hvdtune", store=store, rank=rank, world_size=size)
            setting = runtime.setting()
            for name in ("allreduce_algorithm", "chunk_bytes", "fusion_threshold_bytes"):
                if given := variables.get(f"HVDTUNE_{name.upper()}"):
                    assert str(setting[name]) == given
            digests.append(trained(25, width=20_000)[0])
    return digests


def test_gradients_have_the_same_bits_whatever_carries_them(tmp_path):
    found = members.run(partial(digests_of_all_ways, folder=tmp_path), 3, tmp_path)
    assert len({digest for digests in found for digest in digests}) == 1


def in_graphs(rank, size):
    world = dist.group.WORLD
    assert functional.all_reduce(torch.ones(3), "sum", world).tolist() == [size] * 3
    whole = functional.all_gather_tensor(torch.full((2,), float(rank)), 0, world)
    assert whole.tolist() == [float(r) for r in range(size) for _ in range(2)]
    share = functional.reduce_scatter_tensor(torch.ones(2 * size), "sum", 0, world)
    assert share.tolist() == [size] * 2
    given = torch.arange(float(size)) + 10 * rank
    came = functional.all_to_all_single(given, None, None, world)
    assert came.tolist() == [10.0 * r + rank for r in range(size)]


def test_functional_collectives_reach_the_backend_from_torch_in_cpp(tmp_path):
    members.run(in_graphs, 2, tmp_path)


def sharded(rank, size):
    """The weights of FSDP2 after three steps, and those of DDP on the same data."""
    weights = []
    for wrap in (_fully_sharded, DistributedDataParallel):
        torch.manual_seed(0)
        model = wrap(torch.nn.Sequential(torch.nn.Linear(6, 9), torch.nn.Linear(9, 2)))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        torch.manual_seed(rank)
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.randn(4, 6)).square().mean().backward()
            optimizer.step()
        whole = [getattr(p, "full_tensor", lambda p=p: p)() for p in model.parameters()]
        weights.append([each.detach() for each in whole])
    for one, other in zip(*weights, strict=True):
        assert torch.allclose(one, other)


def _fully_sharded(model):
    return fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))


def test_fsdp2_trains_as_ddp_does(tmp_path):
    members.run(sharded, 2, tmp_path)


def compiled(rank, size):
    torch.manual_seed(0)
    plain = torch.nn.Linear(6, 2)
    model = torch.compile(DistributedDataParallel(plain), backend="aot_eager")
    for _ in range(2):
        plain.zero_grad()
        model(torch.full((3, 6), float(rank))).sum().backward()
    assert torch.allclose(plain.weight.grad, torch.full((2, 6), 3 * (size - 1) / 2))


@pytest.mark.slow  # to compile takes torch seconds
def test_a_compiled_ddp_model_trains(tmp_path):
    members.run(compiled, 2, tmp_path)


def saves_beside_training(rank, size, folder):
    own = dist.new_group()
    saving = checkpoint.async_save({"w": torch.ones(3)}, checkpoint_id=folder, process_group=own)
    for _ in range(20):
        dist.all_reduce(torch.ones(100))
    saving.result()
    state = {"w": torch.zeros(3)}
    checkpoint.load(state, checkpoint_id=folder)
    return state["w"].tolist()


def test_a_checkpoint_is_saved_beside_training(tmp_path):
    body = partial(saves_beside_training, folder=str(tmp_path / "saved"))
    assert members.run(body, 2, tmp_path) == [[1.0] * 3] * 2


def is_profiled(rank, size):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        work = dist.all_reduce(torch.ones(3), async_op=True)
        work.wait()
        dist.broadcast(torch.ones(3), 0)
    return {event.key for event in profile.key_averages() if event.key.startswith("hvdtune:")}


def test_the_profiler_shows_what_was_called_and_waited_for(tmp_path):
    kinds = ("allreduce", "broadcast")
    expected = {f"hvdtune:{way}{kind}" for kind in kinds for way in ("", "wait for ")}
    assert members.run(is_profiled, 2, tmp_path) == [expected] * 2
