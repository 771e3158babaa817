import pytest
import torch

import hvdtune.torch as hvd
from hvdtune.errors import DuplicateNameError, MismatchError, UsageError
from tests.parallel.ranks import run

TWO_HOSTS = ["127.0.0.1", "127.0.0.1", "127.0.0.2", "127.0.0.2"]
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


def reduce_every_dtype():
    rows = {}
    for dtype in INTEGERS + FLOATS:
        mine = torch.arange(1, 8).to(dtype) + hvd.rank()
        for op in (hvd.Sum, hvd.Average, hvd.Min, hvd.Max, hvd.Product):
            rows[f"{dtype} {op.name}"] = hvd.allreduce(mine, op=op, name=f"{dtype}.{op.name}")
    rows["bool SUM"] = hvd.allreduce(torch.tensor([hvd.rank() == 1, False]), op=hvd.Sum)
    rows["bool PRODUCT"] = hvd.allreduce(torch.tensor([hvd.rank() == 1, True]), op=hvd.Product)
    return rows


@pytest.mark.parametrize(("size", "hosts"), [(1, None), (2, None), (4, TWO_HOSTS)])
def test_allreduce_combines_every_dtype_with_every_operation(size, hosts):
    base = torch.arange(1, 8).double()
    stack = torch.stack([base + rank for rank in range(size)])
    expected = {
        "SUM": stack.sum(0),
        "AVERAGE": stack.mean(0),
        "MIN": stack.amin(0),
        "MAX": stack.amax(0),
        "PRODUCT": stack.prod(0),
    }
    for rows in run(reduce_every_dtype, size, hosts=hosts):
        for label, result in rows.items():
            kind, op = label.split()
            if kind == "bool":
                continue
            # Integers wrap and truncate as their dtype does.
            wanted = expected[op].to(torch.int64).to(result.dtype)
            if result.dtype.is_floating_point:
                wanted = expected[op].to(result.dtype)
            assert torch.equal(result, wanted), label
        assert rows["bool SUM"].tolist() == [size > 1, False]
        assert rows["bool PRODUCT"].tolist() == [False, True]


def gather_uneven():
    return hvd.allgather(torch.full((hvd.rank(), 2), hvd.rank(), dtype=torch.int32))


@pytest.mark.parametrize("size", [1, 2, 4])
def test_allgather_concatenates_tensors_of_different_length_in_rank_order(size):
    for result in run(gather_uneven, size):
        assert result[:, 0].tolist() == [rank for rank in range(size) for _ in range(rank)]
        assert result.shape[1] == 2


def broadcast_from_each():
    return [hvd.broadcast(torch.tensor([hvd.rank(), 7]), root, f"b{root}") for root in range(3)]


def test_broadcast_gives_every_rank_the_root_s_tensor():
    for results in run(broadcast_from_each, 3):
        assert [result.tolist() for result in results] == [[0, 7], [1, 7], [2, 7]]


def odd_shapes():
    return [
        hvd.allreduce(torch.tensor(float(hvd.rank())), op=hvd.Sum, name="scalar"),
        hvd.allreduce(torch.empty(0, 3), name="empty"),
        hvd.allreduce(torch.arange(12.0).reshape(3, 4).t(), op=hvd.Sum, name="transposed"),
        hvd.allreduce(torch.ones(3, requires_grad=True), prescale_factor=0.5, postscale_factor=4.0),
    ]


def test_scalars_empty_tensors_transposed_tensors_and_scaling_work():
    for scalar, empty, transposed, scaled in run(odd_shapes, 2):
        assert scalar.item() == 1.0
        assert empty.shape == (0, 3)
        assert torch.equal(transposed, torch.arange(12.0).reshape(3, 4).t() * 2)
        assert scaled.tolist() == [2.0, 2.0, 2.0]


def any_order():
    tensors = [torch.full((n + 1,), float(n)) for n in range(50)]
    order = range(50) if hvd.rank() == 0 else reversed(range(50))
    handles = {n: hvd.allreduce_async_(tensors[n], name=f"t{n}", op=hvd.Sum) for n in order}
    results = [hvd.synchronize(handles[n]) for n in range(50)]
    group = hvd.grouped_allreduce([torch.ones(2), torch.ones(3)], op=hvd.Sum, name="group")
    hvd.barrier()
    in_place = results[3].data_ptr() == tensors[3].data_ptr()
    return [r[0].item() for r in results], [g.tolist() for g in group], in_place


def test_ranks_may_announce_in_any_order():
    for values, group, in_place in run(any_order, 2):
        assert values == [2.0 * n for n in range(50)]
        assert group == [[2.0, 2.0], [2.0, 2.0, 2.0]]
        assert in_place


def disagree(kind):
    shape = (3,) if kind == "shape" and hvd.rank() == 1 else (2,)
    dtype = torch.float64 if kind == "dtype" and hvd.rank() == 1 else torch.float32
    op = hvd.Max if kind == "operation" and hvd.rank() == 1 else hvd.Sum
    with pytest.raises(MismatchError) as caught:
        hvd.allreduce(torch.ones(shape, dtype=dtype), name="grad", op=op)
    after = hvd.allreduce(torch.ones(1), op=hvd.Sum, name="after")
    return str(caught.value), caught.value.tensor, after.item()


@pytest.mark.parametrize("kind", ["shape", "dtype", "operation"])
def test_a_mismatch_raises_on_every_rank_names_tensor_and_ranks_and_ends_nothing_else(kind):
    for message, tensor, after in run(disagree, 2, kind):
        assert tensor == "allreduce.grad"
        assert "rank 0 announced" in message
        assert "rank 1 announced" in message
        assert after == 2.0


def different_operations():
    call = hvd.allgather if hvd.rank() == 1 else hvd.allreduce
    with pytest.raises(MismatchError) as caught:
        call(torch.ones(2), name="grad")
    return str(caught.value), hvd.allreduce(torch.ones(1), op=hvd.Sum).item()


def test_different_operations_under_one_name_fail_on_every_rank_instead_of_hanging():
    for message, after in run(different_operations, 3):
        assert "rank 1 announced allgather float32 [2]" in message
        assert "ranks 0, 2 announced allreduce(average) float32 [2]" in message
        assert after == 3.0


def misuse():
    messages = []
    handle = hvd.allreduce_async(torch.ones(1), name="twice")
    if hvd.rank() == 0:
        with pytest.raises(DuplicateNameError) as duplicate:
            hvd.allreduce_async(torch.ones(1), name="twice")
            hvd.allreduce_async(torch.ones(1), name="twice")
        messages.append(str(duplicate.value))
    hvd.barrier()
    hvd.synchronize(handle)
    for call in (
        lambda: hvd.synchronize(handle),
        lambda: hvd.broadcast(torch.ones(1), root_rank=9),
        lambda: hvd.allgather(torch.tensor(1.0)),
        lambda: hvd.allreduce(torch.ones(2, dtype=torch.complex64)),
        lambda: hvd.allreduce_(torch.ones(4, 4).t()[1:]),
        lambda: hvd.allreduce(torch.ones(1, dtype=torch.int32), op=hvd.Adasum),
        lambda: hvd.allreduce(torch.ones(1), op=99),
        lambda: hvd.allreduce([1.0]),
        lambda: hvd.allreduce(torch.ones(2, 2).to_sparse()),
    ):
        with pytest.raises(UsageError) as usage:
            call()
        messages.append(str(usage.value))
    return messages


def test_misuse_is_refused_with_a_sentence():
    for messages in run(misuse, 2):
        text = "\n".join(messages)
        for part in ("synchronized before", "root rank 9", "at least one dim", "complex64"):
            assert part in text


def place():
    return (
        *(hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size()),
        *(hvd.cross_rank(), hvd.cross_size(), hvd.is_homogeneous()),
    )


def test_ranks_know_their_place():
    assert run(place, 4, hosts=TWO_HOSTS) == [
        (0, 4, 0, 2, 0, 2, True),
        (1, 4, 1, 2, 0, 2, True),
        (2, 4, 0, 2, 1, 2, True),
        (3, 4, 1, 2, 1, 2, True),
    ]


def reduce_with_nan():
    nan = float("nan")
    rows = []
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        tensor = torch.tensor([nan, 1.0] if hvd.rank() == 0 else [1.0, nan], dtype=dtype).repeat(20)
        rows += [hvd.allreduce(tensor, op=op).isnan().all().item() for op in (hvd.Min, hvd.Max)]
    return rows


def test_a_nan_on_any_rank_is_the_minimum_and_the_maximum():
    assert run(reduce_with_nan, 2) == [[True] * 8] * 2


def call_badly():
    tensor = torch.ones(2)
    said = []
    for call in (
        lambda: hvd.broadcast(tensor, None),
        lambda: hvd.broadcast(tensor, 0.5),
        lambda: hvd.broadcast(tensor, 2**40),
        lambda: hvd.allreduce(tensor, name="\ud800"),
        lambda: hvd.allreduce(tensor, op=hvd.Sum, prescale_factor=None),
        lambda: hvd.allreduce(tensor, op=hvd.Sum, postscale_factor=float("nan")),
        lambda: hvd.ProcessSet(["a"]),
        lambda: hvd.ProcessSet([0.5, 1]),
    ):
        with pytest.raises(UsageError) as caught:
            call()
        said.append(str(caught.value))
    return said


def test_bad_arguments_are_refused_in_a_sentence():
    for said in run(call_badly, 2):
        expected = ["root_rank", "root_rank", "root rank", "name", "prescale_factor"]
        expected += ["postscale_factor", "rank numbers", "rank numbers"]
        for part, text in zip(expected, said, strict=True):
            assert part in text and "\n" not in text
