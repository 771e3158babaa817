"""The collectives of torch.distributed, by the backend hvdtune."""

import pytest
import torch
from torch import distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

from hvdtune.errors import UsageError
from tests.distributed import members

SIZE = 3
NUMBERS = (
    torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
    torch.float16, torch.bfloat16, torch.float32, torch.float64,
)  # fmt: skip


def of(rank, dtype=torch.float32, shape=(4,)):
    """A tensor that tells its rank, with small whole numbers, none 0."""
    count = torch.Size(shape).numel()
    return ((torch.arange(count) + rank) % 3 + 1).reshape(shape).to(dtype)


def all_of(size, *arguments):
    return [of(rank, *arguments) for rank in range(size)]


def reductions(rank, size):
    expected = {
        dist.ReduceOp.SUM: lambda each: torch.stack(each).sum(0),
        dist.ReduceOp.MIN: lambda each: torch.stack(each).amin(0),
        dist.ReduceOp.MAX: lambda each: torch.stack(each).amax(0),
        dist.ReduceOp.PRODUCT: lambda each: torch.stack(each).prod(0),
    }
    for dtype in NUMBERS:
        for op, reduce in expected.items():
            tensor = of(rank, dtype)
            dist.all_reduce(tensor, op)
            assert torch.equal(tensor, reduce(all_of(size, dtype)).to(dtype)), (dtype, op)
    mean, scaled = of(rank), of(rank)
    dist.all_reduce(mean, dist.ReduceOp.AVG)
    dist.all_reduce(scaled, dist._make_nccl_premul_sum(2.0))
    assert torch.allclose(mean, torch.stack(all_of(size)).mean(0))
    assert torch.equal(scaled, 2 * torch.stack(all_of(size)).sum(0))


def forms_of_tensors(rank, size):
    total = torch.stack(all_of(size, torch.float32, (4, 6))).sum(0)
    strided = of(rank, torch.float32, (4, 6)).t().contiguous().t()
    assert not strided.is_contiguous()
    dist.all_reduce(strided)
    assert torch.equal(strided, total)
    complex_one = torch.complex(of(rank), -of(rank))
    dist.all_reduce(complex_one)
    whole = torch.stack(all_of(size)).sum(0)
    assert torch.equal(complex_one, torch.complex(whole, -whole))
    for tensor in (torch.empty(0), torch.empty(3, 0)):
        dist.all_reduce(tensor)
    scalar = torch.tensor(float(rank))
    dist.all_reduce(scalar)
    assert scalar.item() == sum(range(size))
    many = [of(rank), of(rank, torch.float32, (2, 2))]
    dist.all_reduce_coalesced(many)
    assert torch.equal(many[1], torch.stack(all_of(size, torch.float32, (2, 2))).sum(0))
    small = torch.full((5,), rank + 1).to(torch.float8_e4m3fn)
    parts = [torch.empty_like(small) for _ in range(size)]
    dist.all_gather(parts, small)
    assert [part.float()[0].item() for part in parts] == [r + 1 for r in range(size)]


def moves(rank, size):
    one = of(rank, torch.int32)
    dist.broadcast(one, 1)
    assert torch.equal(one, of(1, torch.int32))
    kept = of(rank)
    dist.reduce(kept, 2)
    expected = torch.stack(all_of(size)).sum(0) if rank == 2 else of(rank)
    assert torch.equal(kept, expected)
    uneven = [torch.zeros(r + 1, 2) for r in range(size)]
    dist.all_gather(uneven, torch.full((rank + 1, 2), float(rank)))
    assert [part.mean().item() for part in uneven] == list(range(size))
    whole = torch.empty(size * 4)
    dist.all_gather_single(whole, of(rank))
    assert torch.equal(whole, torch.cat(all_of(size)))
    share = torch.empty(2)
    dist.reduce_scatter_single(share, of(rank, torch.float32, (2 * size,)))
    total = torch.stack(all_of(size, torch.float32, (2 * size,))).sum(0)
    assert torch.equal(share, total[2 * rank : 2 * rank + 2])
    dist.reduce_scatter(share, list(of(rank, torch.float32, (size, 2))))
    assert torch.equal(share, total[2 * rank : 2 * rank + 2])
    gathered = [torch.zeros(4) for _ in range(size)] if rank == 1 else None
    dist.gather(of(rank), gathered, dst=1)
    if rank == 1:
        assert torch.equal(torch.cat(gathered), torch.cat(all_of(size)))
    own = torch.empty(4)
    dist.scatter(own, all_of(size) if rank == 2 else None, src=2)
    assert torch.equal(own, of(rank))
    dist.barrier()


def exchanges(rank, size):
    came = [torch.empty(2) for _ in range(size)]
    dist.all_to_all(came, [torch.full((2,), 10.0 * rank + to) for to in range(size)])
    assert [part[0].item() for part in came] == [10.0 * r + rank for r in range(size)]
    # Rank r sends r + to rows to each, so that some send none.
    sends = [rank + to for to in range(size)]
    takes = [r + rank for r in range(size)]
    given = torch.cat([torch.full((count, 3), float(rank)) for count in sends])
    taken = torch.empty(sum(takes), 3)
    dist.all_to_all_single(taken, given, takes, sends)
    assert taken[:, 0].tolist() == [float(r) for r in range(size) for _ in range(takes[r])]


def objects(rank, size):
    everybody = [None] * size
    dist.all_gather_object(everybody, {"rank": rank, "text": "x" * rank})
    assert everybody == [{"rank": r, "text": "x" * r} for r in range(size)]
    said = [f"by {rank}"]
    dist.broadcast_object_list(said, 1)
    assert said == ["by 1"]


def work(rank, size):
    works = [dist.all_reduce(torch.ones(8), async_op=True) for _ in range(20)]
    held = [each.get_future() for each in works[:10]]
    dropped = torch.ones(100)
    dist.all_reduce(dropped, async_op=True)
    assert all(future.wait()[0][0] == size for future in held)
    for each in works:
        assert each.wait() and each.is_completed() and each.is_success()
    dist.barrier()
    assert dropped[0] == size


def groups(rank, size):
    firsts = [dist.new_group([0, 1]), dist.new_group([0, 1]), dist.new_group(range(size))]
    # Each group for itself: here in another order on every rank.
    order = [0, 1, 2] if rank == 0 else [2, 1, 0]
    for_me = [at for at in order if rank < 2 or at == 2]
    tensors = {at: torch.ones(3) for at in for_me}
    started = [dist.all_reduce(tensors[at], group=firsts[at], async_op=True) for at in for_me]
    for each in started:
        each.wait()
    assert [tensors[at][0].item() for at in sorted(for_me)] == [2, 2, 3] if rank < 2 else [3]
    dist.destroy_process_group(firsts[2])
    dist.barrier()


@pytest.mark.parametrize(
    "body", [reductions, forms_of_tensors, moves, exchanges, objects, work, groups]
)
def test_every_rank_has_the_result(body, tmp_path):
    members.run(body, SIZE, tmp_path)


def waits_in_a_callback(rank, size):
    def again(future):
        dist.all_reduce(future.value()[0])
        return dist.all_reduce(future.value()[0], async_op=True).get_future().wait()[0]

    store = dist.distributed_c10d._get_default_store()
    if rank == 1:  # so that rank 0 has its callback before the operation ends
        store.wait(["has its callback"])
    last = dist.all_reduce(torch.ones(2), async_op=True).get_future().then(again)
    if rank == 0:
        store.set("has its callback", "")
    assert last.wait()[0] == size**3


def powers_of_gradients(rank, size):
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(20, 20))
    state = powerSGD_hook.PowerSGDState(None, 1, start_powerSGD_iter=2)
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    for _ in range(20):
        model(torch.ones(2, 20)).sum().backward()
    assert torch.isfinite(model.module.weight.grad).all()


@pytest.mark.parametrize("body", [waits_in_a_callback, powers_of_gradients])
def test_a_callback_of_a_future_may_wait_for_operations(body, tmp_path):
    members.run(body, 2, tmp_path)


def differ(rank, size):
    messages = []
    for call in (
        lambda: dist.all_reduce(torch.ones(3 + rank)),
        lambda: dist.all_reduce(torch.ones(3)) if rank else dist.broadcast(torch.ones(3), 0),
        lambda: dist.all_gather_single(torch.empty(5), torch.ones(1)),
        lambda: dist.all_reduce(torch.ones(1, device="meta")),
        lambda: dist.all_reduce(torch.ones(1), dist.ReduceOp.BXOR),
    ):
        with pytest.raises(RuntimeError) as caught:
            call()
        messages.append(str(caught.value))
    dist.barrier()
    return messages


def test_a_call_that_cannot_be_says_why_and_the_group_goes_on(tmp_path):
    for shape, operation, share, place, op in members.run(differ, 2, tmp_path):
        assert "rank 0 announced allreduce(sum) float32 [3], rank 1 announced" in shape
        assert "broadcast" in operation and "rank 1 announced allreduce" in operation
        assert "times the elements" in share
        assert "on the CPU, not on meta" in place
        assert "BXOR of torch.float32 is not supported" in op


def one_errs(rank, size):
    """Rank 1 calls what it cannot; the operations after that are those of all ranks."""
    wrong = rank == 1
    told = []
    for number, call in enumerate(
        (
            lambda: dist.all_gather_single(torch.empty(3 * size - wrong), torch.ones(3)),
            lambda: dist.reduce_scatter_single(torch.empty(2 + wrong), torch.ones(2 * size)),
            lambda: dist.all_reduce(torch.ones(3, device="meta" if wrong else "cpu")),
            lambda: dist.scatter(
                torch.empty(2), [torch.ones(2)] * (size - 1) if wrong else None, src=1
            ),
            lambda: dist.all_to_all_single(
                torch.empty(size), torch.ones(size), [2, 0, 1] if wrong else None
            ),
        )
    ):
        try:
            call()
        except (UsageError, dist.DistBackendError) as error:
            told.append(f"{type(error).__name__}: {error}")
        else:
            told.append("")
        for again in range(3):
            value = torch.full((3,), float(number + again))
            dist.all_reduce(value)
            assert value.tolist() == [size * float(number + again)] * 3
    return told


def test_who_takes_no_part_in_an_operation_tells_the_others_and_loses_its_place_in_none(tmp_path):
    first, wrong, last = members.run(one_errs, 3, tmp_path)
    for told in (first, last):
        assert all(
            "rank 1 announced a call that raised an error there" in text for text in told[:4]
        )
        assert told[4] == ""
    assert all(text.startswith("UsageError: ") for text in wrong[:4])
    assert "needs a tensor for each of 3 ranks, not 2" in wrong[3]
    assert "rank 0 of the group sends 1 element, but there is room for 2" in wrong[4]


def loses_one(rank, size):
    dist.all_reduce(torch.ones(1))
    if rank == 1:
        members.die()
    dist.all_reduce(torch.ones(4))


def loses_one_in_backward(rank, size):
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
    for _ in range(2):  # DDP arranges its buckets in the second
        model(torch.ones(1, 4)).sum().backward()
    if rank == 1:
        members.die()
    model(torch.ones(1, 4)).sum().backward()


@pytest.mark.parametrize("body", [loses_one, loses_one_in_backward])
def test_a_killed_rank_is_named_to_the_others(body, tmp_path):
    found = members.run(body, SIZE, tmp_path, kills=1)
    assert found.pop(1).error is None
    for survivor in found:
        assert survivor.error.kind == "DistBackendError", survivor.trace
        assert survivor.error.rank == 1
        assert "allreduce" in str(survivor.error) and "rank 1" in str(survivor.error)


def loses_one_before_a_group(rank, size):
    if rank == 1:
        members.die()
    dist.new_group(range(size))  # may take half an hour, as torch has it


def test_a_group_that_a_killed_rank_will_not_join_is_given_up(tmp_path):
    found = members.run(loses_one_before_a_group, SIZE, tmp_path, kills=1)
    for survivor in (found[0], found[2]):
        assert survivor.error.kind == "DistBackendError", survivor.trace
        assert survivor.error.rank == 1
