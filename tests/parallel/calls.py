"""A collective call as a value: its inputs on every rank, how to start it, and what it must give.

Everything follows from the fields, so that any rank, and the test itself, can compute any rank's
inputs and the results in float64 (integers in int64) without communicating.
"""

import dataclasses
import math
from typing import Any

import numpy as np
import torch

import hvdtune.torch as hvd
from hvdtune.errors import CollectiveError

REDUCTIONS = ("Sum", "Average", "Min", "Max", "Product", "Adasum")
FLOATS = ("float16", "bfloat16", "float32", "float64")
INTEGERS = ("uint8", "int8", "int16", "int32", "int64")
# One rounding at the end, of a sum taken in float32 or better.
EPSILON = {"float16": 2**-10, "bfloat16": 2**-7, "float32": 2**-22, "float64": 2**-50}


@dataclasses.dataclass(frozen=True, repr=False)
class Call:
    """`tensors` 0 means the plain function, n the grouped one with n tensors.

    `disagreeing` is a rank that announces another dtype than the others.
    """

    kind: str  # allreduce, allgather, broadcast, alltoall, reducescatter
    ranks: tuple[int, ...]
    dtype: str = "float32"
    shape: tuple[int, ...] = (5, 3)
    op: str = "Sum"
    tensors: int = 0
    prescale: float = 1.0
    postscale: float = 1.0
    root: int = 0
    seed: int = 0
    strided: bool = False
    in_place: bool = False
    disagreeing: int | None = None

    @property
    def count(self) -> int:
        return max(1, self.tensors)

    def __repr__(self) -> str:
        fields = dataclasses.fields(self)
        told = [f for f in fields if getattr(self, f.name) != f.default]
        return f"Call({', '.join(f'{f.name}={getattr(self, f.name)!r}' for f in told)})"


def splits_of(call: Call, rank: int) -> list[int]:
    """How many rows this rank sends to each rank of the set."""
    return [(call.seed + 3 * rank + 5 * to) % 4 for to in range(len(call.ranks))]


def shape_of(call: Call, rank: int, index: int) -> tuple[int, ...]:
    if call.kind == "allgather":
        return ((call.seed + 2 * rank + index) % 4, *call.shape[1:])
    if call.kind == "alltoall":
        return (sum(splits_of(call, rank)), *call.shape[1:])
    return call.shape if index == 0 else (*call.shape, index)


def inputs_of(call: Call, rank: int) -> list[torch.Tensor]:
    rows = []
    for index in range(call.count):
        generator = torch.Generator().manual_seed(call.seed * 1009 + rank * 101 + index)
        shape = shape_of(call, rank, index)
        if call.dtype in FLOATS:
            tensor = torch.randn(shape, generator=generator) * 2
        else:
            top = 2 if call.dtype == "bool" else 4
            tensor = torch.randint(0, top, shape, generator=generator)
        tensor = tensor.to(getattr(torch, call.dtype))
        if call.strided and tensor.dim() > 1:
            tensor = tensor.transpose(0, 1).contiguous().transpose(0, 1)
        rows.append(tensor)
    return rows


def start(call: Call, name: str, process_set: Any) -> int:
    """The handle of this rank's part in the call."""
    tensors = inputs_of(call, hvd.rank())
    if call.disagreeing == hvd.rank():
        other = torch.float64 if call.dtype != "float64" else torch.float32
        tensors = [tensor.to(other) for tensor in tensors]
    if call.in_place:
        tensors = [tensor.contiguous() for tensor in tensors]
    grouped = "grouped_" if call.tensors else ""
    function = getattr(hvd, f"{grouped}{call.kind}_async{'_' if call.in_place else ''}")
    given = tensors if call.tensors else tensors[0]
    options: dict[str, Any] = {"name": name, "process_set": process_set}
    if call.kind in ("allreduce", "reducescatter"):
        options |= {"op": getattr(hvd, call.op)}
        options |= {"prescale_factor": call.prescale, "postscale_factor": call.postscale}
    if call.kind == "broadcast":
        options["root_rank"] = call.root
    if call.kind == "alltoall":
        options["splits"] = torch.tensor(splits_of(call, hvd.rank()), dtype=torch.int32)
    return function(given, **options)


def finish(call: Call, handle: int) -> list[torch.Tensor] | str:
    """This rank's results, or the name of the error that every rank of the set must get."""
    try:
        result = hvd.synchronize(handle)
    except CollectiveError as error:
        return type(error).__name__
    if call.kind == "alltoall":
        output, received = result
        return [output, received]
    return list(result) if call.tensors else [result]


def expected(call: Call, rank: int, present: tuple[int, ...] | None = None) -> list[np.ndarray]:
    """This rank's results; `present` are the ranks that have not joined (default: all)."""
    here = call.ranks if present is None else present
    rows = {r: [wide(tensor) for tensor in inputs_of(call, r)] for r in here}
    if call.kind == "allreduce":
        return [reduced(call, [rows[r][i] for r in here]) for i in range(call.count)]
    if call.kind == "broadcast":
        return [rows[call.root][i] for i in range(call.count)]
    if call.kind == "allgather":
        return [np.concatenate([rows[r][i] for r in here]) for i in range(call.count)]
    me = call.ranks.index(rank)
    if call.kind == "reducescatter":
        whole = [reduced(call, [rows[r][i] for r in here]) for i in range(call.count)]
        return [tensor[share(len(tensor), me, len(call.ranks))] for tensor in whole]
    blocks, counts = [], []
    for sender in call.ranks:
        splits = splits_of(call, sender)
        begin = sum(splits[:me])
        blocks.append(rows[sender][0][begin : begin + splits[me]])
        counts.append(splits[me])
    return [np.concatenate(blocks), np.array(counts)]


def share(rows: int, position: int, ranks: int) -> slice:
    """The rows of a reducescatter's result that go to this position of the set."""
    each, more = divmod(rows, ranks)
    begin = position * each + min(position, more)
    return slice(begin, begin + each + (position < more))


def reduced(call: Call, rows: list[np.ndarray]) -> np.ndarray:
    stack = np.stack(rows) * (call.prescale if call.prescale != 1.0 else 1)
    if call.op == "Adasum":
        total = adasum(rows if call.prescale == 1.0 else [row * call.prescale for row in rows])
    elif call.op in ("Sum", "Average"):
        total = stack.sum(axis=0)
        if call.op == "Average":
            total = total / len(call.ranks)
    else:
        total = {"Min": np.min, "Max": np.max, "Product": np.prod}[call.op](stack, axis=0)
    return total * call.postscale if call.postscale != 1.0 else total


def adasum(rows: list[np.ndarray]) -> np.ndarray:
    """Neighbours combine, an odd last one goes up as it is, until one is left."""
    while len(rows) > 1:
        pairs = [adasum_pair(a, b) for a, b in zip(rows[::2], rows[1::2], strict=False)]
        rows = pairs + rows[len(rows) - len(rows) % 2 :]
    return rows[0]


def adasum_pair(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    ab, aa, bb = (a * b).sum(), (a * a).sum(), (b * b).sum()
    if aa == 0 or bb == 0:
        return a + b
    return a * (1 - ab / (2 * aa)) + b * (1 - ab / (2 * bb))


def wide(tensor: torch.Tensor) -> np.ndarray:
    kind = torch.float64 if tensor.dtype.is_floating_point else torch.int64
    return tensor.to(kind).numpy()


def difference(call: Call, rank: int, results: list[torch.Tensor], wanted: list[np.ndarray]) -> str:
    """Empty if the results are right, else what is wrong with them."""
    if len(results) != len(wanted):
        return f"{len(results)} results instead of {len(wanted)}"
    for index, (result, right) in enumerate(zip(results, wanted, strict=True)):
        if tuple(result.shape) != right.shape:
            return f"result {index} on rank {rank} is {tuple(result.shape)}, not {right.shape}"
        got = wide(result)
        if call.dtype not in FLOATS or result.dtype in (torch.int32, torch.int64):
            kind = str(result.dtype).removeprefix("torch.")
            right = right.astype(np.int64).astype(kind).astype(np.int64)
            if not np.array_equal(got, right):
                return f"result {index} on rank {rank} is {got}, not {right}"
        else:
            scale = max(1.0, math.fabs(call.prescale * call.postscale)) * 8 * len(call.ranks)
            near = EPSILON[call.dtype] * (np.abs(right) + scale)
            if not (np.abs(got - right) <= near).all():
                return f"result {index} on rank {rank} is off by {np.abs(got - right).max()}"
    return ""
