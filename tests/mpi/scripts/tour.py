"""Every collective, with MPI for control only and for data too, in one process after another."""

import dataclasses
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

import hvdtune.torch as hvd
from hvdtune.core.config.environment import Config
from hvdtune.core.rank import runtime
from hvdtune.errors import MismatchError
from hvdtune.timeline import read

DTYPES = {
    torch.float32: 1e-6,
    torch.float64: 1e-12,
    torch.float16: 2e-3,
    torch.bfloat16: 2e-2,
    torch.int8: 0,
    torch.uint8: 0,
    torch.int32: 0,
    torch.int64: 0,
}
REDUCTIONS = {
    hvd.Sum: lambda values: values.sum(axis=0),
    hvd.Average: lambda values: values.mean(axis=0),
    hvd.Min: lambda values: values.min(axis=0),
    hvd.Max: lambda values: values.max(axis=0),
    hvd.Product: lambda values: values.prod(axis=0),
}
# More than the 8 MiB that one call of MPI carries.
LONG = 3_000_001


def contribution(rank, shape, dtype):
    values = np.random.default_rng(rank).integers(1, 4, size=shape).astype(np.float64)
    return torch.from_numpy(values).to(dtype)


def expect(result, wanted, tolerance):
    np.testing.assert_allclose(result.double().numpy(), wanted, rtol=tolerance, atol=tolerance)


def allreduce():
    for dtype, tolerance in DTYPES.items():
        for op, reference in REDUCTIONS.items():
            if op == hvd.Average and not dtype.is_floating_point:
                continue
            for shape in ((), (7,), (33, 5), (0,)):
                name = f"allreduce.{dtype}.{int(op)}.{shape}"
                shares = [contribution(rank, shape, dtype) for rank in range(hvd.size())]
                wanted = reference(np.stack([share.double().numpy() for share in shares]))
                result = hvd.allreduce(shares[hvd.rank()], op=op, name=name)
                assert result.dtype == dtype and result.shape == torch.Size(shape)
                expect(result, wanted, tolerance)
    flags = torch.tensor([hvd.rank() == 0, False, True])
    assert hvd.allreduce(flags, op=hvd.Sum).tolist() == [True, False, True]
    assert hvd.allreduce(flags, op=hvd.Product).tolist() == [hvd.size() == 1, False, True]


def scaled_and_grouped():
    scaled = hvd.allreduce(
        torch.ones(5), op=hvd.Sum, prescale_factor=3.0, postscale_factor=0.5, name="scaled"
    )
    assert scaled.tolist() == [1.5 * hvd.size()] * 5
    group = [torch.full((size,), float(hvd.rank())) for size in (1, 1000, 17)]
    for result in hvd.grouped_allreduce(group, op=hvd.Sum, name="group"):
        assert (result == sum(range(hvd.size()))).all()


def large():
    values = torch.arange(LONG, dtype=torch.float32)
    result = hvd.allreduce(values * (hvd.rank() + 1), op=hvd.Sum, name="large")
    factor = sum(range(1, hvd.size() + 1))
    np.testing.assert_allclose(result.numpy(), values.numpy() * factor, rtol=1e-6)
    sent = values + hvd.rank()
    assert torch.equal(hvd.broadcast(sent, hvd.size() - 1), values + hvd.size() - 1)
    gathered = hvd.allgather(sent[: LONG - hvd.rank()])
    at = 0
    for rank in range(hvd.size()):
        block = gathered[at : at + LONG - rank]
        assert torch.equal(block, values[: LONG - rank] + rank)
        at += LONG - rank
    assert at == len(gathered)


def movement():
    for root in range(hvd.size()):
        sent = torch.full((3, 2), hvd.rank(), dtype=torch.int16)
        assert hvd.broadcast(sent, root).unique().tolist() == [root]
    rows = hvd.allgather(torch.full((hvd.rank(), 2), float(hvd.rank())))
    assert rows[:, 1].tolist() == [r for r in range(hvd.size()) for _ in range(r)]
    hvd.barrier()


def all_to_all():
    rank, size = hvd.rank(), hvd.size()
    splits = [peer + 1 for peer in range(size)]
    sent = torch.cat([torch.full((n,), 10.0 * rank + peer) for peer, n in enumerate(splits)])
    received, counts = hvd.alltoall(sent, splits=torch.tensor(splits))
    assert counts.tolist() == [rank + 1] * size
    assert received.tolist() == [
        10.0 * peer + rank for peer in range(size) for _ in range(rank + 1)
    ]
    # Only one pair has anything to say, and more than one call of MPI carries.
    splits = [LONG if (rank, peer) == (0, size - 1) else 0 for peer in range(size)]
    received, _ = hvd.alltoall(torch.arange(float(sum(splits))), splits=torch.tensor(splits))
    wanted = LONG if rank == size - 1 else 0
    assert torch.equal(received, torch.arange(float(wanted)))


def scattered_sums():
    rank, size = hvd.rank(), hvd.size()
    for rows, dtype in ((2 * size + 1, torch.float16), (LONG, torch.float32), (0, torch.int64)):
        values = torch.arange(rows, dtype=torch.int64).remainder(100).to(dtype)
        result = hvd.reducescatter(values, op=hvd.Sum, name=f"scatter.{rows}")
        counts = [rows // size + (peer < rows % size) for peer in range(size)]
        begin = sum(counts[:rank])
        assert torch.equal(result, values[begin : begin + counts[rank]] * size), (rows, dtype)


def process_sets():
    rank, size = hvd.rank(), hvd.size()
    halves = [hvd.ProcessSet(list(range(first, size, 2))) for first in (0, 1)]
    for half in halves:
        hvd.add_process_set(half)
    mine = halves[rank % 2]
    total = hvd.allreduce(torch.tensor([rank]), op=hvd.Sum, process_set=mine)
    assert total.item() == sum(range(rank % 2, size, 2))
    sent = torch.tensor([float(rank)])
    assert hvd.broadcast(sent, size - 2 + rank % 2, process_set=mine).item() == size - 2 + rank % 2
    for half in halves:
        assert hvd.remove_process_set(half)


def disagreement():
    try:
        hvd.allreduce(torch.ones(2 + hvd.rank()), name="disagreement")
    except MismatchError as error:
        assert error.tensor.endswith("disagreement"), error.tensor
    else:
        raise AssertionError("ranks disagreed about a shape and nobody minded")
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == hvd.size()


def reduced_elsewhere(trace):
    """Whether an allreduce exchanged data, which ours, in shared memory, does not."""
    events = read(trace).events
    reduced = events.loc[events["kind"] == "ALLREDUCE", "bucket"]
    return bool(((events["kind"] == "EXCHANGE") & events["bucket"].isin(reduced)).any())


STEPS = (
    allreduce,
    scaled_and_grouped,
    movement,
    large,
    all_to_all,
    scattered_sums,
    process_sets,
    disagreement,
)


def main(ranks):
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        for operations in ("hvdtune", "mpi"):
            trace = str(Path(folder) / f"{operations}-%r.hvt")
            config = Config.from_environ()
            config = dataclasses.replace(
                config,
                mpi=dataclasses.replace(config.mpi, cpu_operations=operations),
                recording=dataclasses.replace(config.recording, timeline=trace),
            )
            runtime.init(config=config)
            assert hvd.size() == hvd.local_size() == ranks
            assert hvd.mpi_enabled() and hvd.mpi_built() and hvd.mpi_threads_supported()
            for step in STEPS:
                step()
            rank = hvd.rank()
            hvd.shutdown()
            (own,) = Path(folder).glob(f"{operations}-{rank}*.hvt")  # the second job's has a number
            by_mpi = reduced_elsewhere(str(own))
            assert by_mpi == (operations == "mpi"), operations
    print(f"rank {rank} of {ranks} is done")


main(int(sys.argv[1]))
