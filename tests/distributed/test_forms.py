"""Forms of torch's collectives that scripts meet less often, by the backend hvdtune."""

import importlib
import time
from datetime import timedelta
from functools import partial

import pytest
import torch
from torch import distributed as dist
from torch.multiprocessing.reductions import StorageWeakRef

from hvdtune.distributed import form_group
from hvdtune.errors import UsageError
from tests.distributed import members

SIZE = 3
MOVED = (torch.bool, torch.complex64, torch.complex128, torch.float8_e5m2, torch.uint16)


def of(rank, dtype, shape=(2, 3)):
    return torch.full(shape, rank % 2 + 1.0).to(dtype)


def same(one, other):
    return torch.equal(one.contiguous().view(torch.uint8), other.contiguous().view(torch.uint8))


def every_dtype_is_moved(rank, size):
    right, left = (rank + 1) % size, (rank - 1) % size
    for dtype in MOVED:
        strided = of(9, dtype, (3, 2)).t()
        dist.broadcast(strided if rank else of(0, dtype), 0)
        assert not rank or same(strided, of(0, dtype))
        came = of(9, dtype, (3, 2)).t()
        pair = [dist.P2POp(dist.isend, of(rank, dtype), right), dist.P2POp(dist.irecv, came, left)]
        for work in dist.batch_isend_irecv(pair):
            work.wait()
        assert same(came, of(left, dtype))
        given = of(rank, dtype, (size, 4))
        exchanged = torch.empty_like(given)
        dist.all_to_all_single(exchanged, given)
        assert all(same(exchanged[r], of(r, dtype, (4,))) for r in range(size))
        gathered = [torch.empty_like(of(0, dtype)) for _ in range(size)] if rank == 2 else None
        dist.gather(of(rank, dtype), gathered, dst=2)
        assert all(same(part, of(r, dtype)) for r, part in enumerate(gathered or []))


def empty_tensors(rank, size):
    nothing = torch.empty(0, 4)
    for call in (
        lambda: dist.all_reduce(nothing, dist.ReduceOp.MAX),
        lambda: dist.all_gather([torch.empty(0, 4) for _ in range(size)], nothing),
        lambda: dist.all_to_all_single(torch.empty(0, 4), nothing, [0] * size, [0] * size),
        lambda: dist.reduce_scatter_single(nothing, torch.empty(0, 4)),
        lambda: dist.broadcast(nothing, 1),
        lambda: dist.send(nothing, 1) if rank == 0 else None,
        lambda: dist.recv(nothing, 0) if rank == 1 else None,
        lambda: dist.barrier(),
    ):
        call()


def coalesced(rank, size):
    with dist._coalescing_manager(group=dist.group.WORLD, async_ops=True) as manager:
        many = [torch.full((n + 1,), float(rank)) for n in range(4)]
        for tensor in many:
            dist.all_reduce(tensor)
    manager.wait()
    assert [tensor[0].item() for tensor in many] == [sum(range(size))] * 4
    wholes = [torch.empty(size * (n + 1)) for n in range(2)]
    with dist._coalescing_manager(group=dist.group.WORLD):
        for n, whole in enumerate(wholes):
            dist.all_gather_into_tensor(whole, torch.full((n + 1,), float(rank)))
    assert wholes[1].tolist() == [float(r) for r in range(size) for _ in range(2)]


def memory_is_free_once_nobody_has_it(rank, size):
    def begun():
        """A gathering that nobody waits for, and what tells whether its result is still there."""
        parts = [torch.empty(100) for _ in range(size)]
        dist.all_gather(parts, torch.ones(100), async_op=True)
        return [StorageWeakRef(part.untyped_storage()) for part in parts]

    left = [ref for _ in range(3) for ref in begun()]
    dist.barrier()
    waited = torch.ones(100)
    dist.all_reduce(waited)
    assert waited.tolist() == [size] * 100
    left.append(StorageWeakRef(waited.untyped_storage()))
    del waited
    deadline_s = time.monotonic() + members.SILENCE_S / 2
    while not all(ref.expired() for ref in left):  # what was not waited for may be under way
        assert time.monotonic() < deadline_s, [ref.expired() for ref in left]
        time.sleep(0.001)


def groups_that_torch_does_not_know(rank, size):
    for number in range(2):  # one after the other, as libraries do that form theirs anew
        store = dist.PrefixStore(f"own {number}", dist.distributed_c10d._get_default_store())
        group = form_group(store, rank, size, timedelta(seconds=60), f"own {number}")
        total = torch.ones(3)
        group.allreduce([total]).wait()
        assert total.tolist() == [size] * 3
        group.abort()
        with pytest.raises(dist.DistBackendError, match=f"of process group own {number}"):
            group.allreduce([total]).wait()


def aborts(rank, size):
    world = dist.group.WORLD
    never = dist.irecv(torch.empty(1), (rank + 1) % size)
    dist.barrier()
    world.abort()
    with pytest.raises(dist.DistBackendError):
        never.wait()
    with pytest.raises(dist.DistBackendError):
        dist.all_reduce(torch.ones(1))
    dist.destroy_process_group()
    return True


def over_2_gib(rank, size):
    count = 2**31 + 2**10
    whole = torch.full((count,), rank + 1, dtype=torch.uint8)
    dist.all_reduce(whole)
    assert whole[0] == whole[-1] == 3 and whole.min() == whole.max()
    whole.fill_(rank)
    whole[-1] = 7 + rank
    dist.broadcast(whole, 1)
    assert whole[0] == 1 and whole[-1] == 8
    if rank == 0:
        whole[-2:] = torch.tensor([5, 6])
        dist.send(whole, 1)
    else:
        dist.recv(whole, 0)
    assert whole[-3:].tolist() == [1, 5, 6]


@pytest.mark.slow  # moves as much three times
def test_tensors_of_over_2_gib(tmp_path):
    members.run(over_2_gib, 2, tmp_path)


BODIES = (
    every_dtype_is_moved,
    empty_tensors,
    coalesced,
    memory_is_free_once_nobody_has_it,
    groups_that_torch_does_not_know,
    aborts,
)


@pytest.mark.parametrize("body", BODIES)
def test_every_rank_has_the_result(body, tmp_path):
    members.run(body, SIZE, tmp_path)


def carries_other_devices(rank, size, store):
    importlib.import_module("torch.testing._internal.distributed.fake_pg")  # registers it
    dist.destroy_process_group()
    dist.init_process_group(
        "cpu:hvdtune,meta:fake", init_method=f"file://{store}", rank=rank, world_size=size
    )
    value, elsewhere = torch.ones(3), torch.ones(3, device="meta")
    dist.all_reduce(value)
    assert value.tolist() == [float(size)] * 3
    work = dist.all_reduce(elsewhere, async_op=True)
    work.wait()
    dist.all_gather_single(torch.empty(3 * size, device="meta"), elsewhere)
    group = dist.group.WORLD
    assert [device.type for device in group._device_types] == ["cpu", "meta"]
    assert group._get_backend(torch.device("cpu")) is group
    dist.destroy_process_group()
    dist.init_process_group(
        "cpu:hvdtune,meta:none", init_method=f"file://{store}2", rank=rank, world_size=size
    )
    with pytest.raises(UsageError, match="backend 'none' for tensors on meta is unknown"):
        dist.all_reduce(elsewhere)
    return type(work).__name__


def test_tensors_of_another_device_go_to_the_backend_that_was_asked_for(tmp_path):
    importlib.import_module("torch.testing._internal.distributed.fake_pg")
    body = partial(carries_other_devices, store=str(tmp_path / "other"))
    assert members.run(body, 2, tmp_path) == ["FakeWork"] * 2
