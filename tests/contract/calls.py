"""A collective call as a value: its inputs on every rank, how to start it, and what it must give.

Everything follows from the fields, so that any rank, and the test itself, can compute any rank's
inputs and the results in float64 (integers in int64) without communicating. Tensors are of the
framework given.
"""

import dataclasses
import math
from typing import Any

import numpy as np

from hvdtune.errors import CollectiveError
from tests.contract.framework import FRAMEWORKS, Framework

REDUCTIONS = ("Sum", "Average", "Min", "Max", "Product", "Adasum")
FLOATS = ("float16", "bfloat16", "float32", "float64")
MOVED = ("float8_e4m3fn", "float8_e5m2")  # by collectives that reduce nothing
INTEGERS = ("uint8", "int8", "uint16", "int16", "int32", "int64")
# One rounding at the end, of a sum taken in float32 or better.
EPSILON = {"float16": 2**-10, "bfloat16": 2**-7, "float32": 2**-22, "float64": 2**-50}
LARGEST = {"float16": 65504}
TORCH = FRAMEWORKS["torch"]


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


def inputs_of(call: Call, rank: int, framework: Framework = TORCH) -> list[Any]:
    rows = []
    for index in range(call.count):
        generator = np.random.default_rng((call.seed, rank, index))
        shape = shape_of(call, rank, index)
        if call.dtype in FLOATS:
            values = generator.standard_normal(shape, np.float32) * 2
        else:
            values = generator.integers(0, 2 if call.dtype == "bool" else 4, shape)
        tensor = framework.tensor(np.asarray(values), call.dtype)
        rows.append(framework.strided(tensor) if call.strided else tensor)
    return rows


def start(call: Call, name: str, process_set: Any, framework: Framework = TORCH) -> Any:
    """This rank's part in the call: a handle, or the result where there are no handles."""
    hvd = framework.hvd
    tensors = inputs_of(call, hvd.rank(), framework)
    if call.disagreeing == hvd.rank():
        other = "float64" if call.dtype != "float64" else "float32"
        tensors = [framework.tensor(framework.wide(tensor), other) for tensor in tensors]
    if call.in_place:
        tensors = [framework.tensor(framework.wide(t), framework.dtype(t)) for t in tensors]
    function = f"grouped_{call.kind}" if call.tensors else call.kind
    trail = "_" if call.in_place else ""
    options: dict[str, Any] = {"name": name, "process_set": process_set}
    if call.kind in ("allreduce", "reducescatter"):
        options |= {"op": getattr(hvd, call.op)}
        options |= {"prescale_factor": call.prescale, "postscale_factor": call.postscale}
    if call.kind == "broadcast":
        options["root_rank"] = call.root
    if call.kind == "alltoall":
        options["splits"] = framework.tensor(np.array(splits_of(call, hvd.rank())), "int32")
    started = getattr(hvd, f"{function}_async{trail}", None) or getattr(hvd, function + trail)
    return started(tensors if call.tensors else tensors[0], **options)


def finish(call: Call, handle: Any, framework: Framework = TORCH) -> list[Any] | str:
    """This rank's results, or the name of the error that every rank of the set must get."""
    try:
        result = framework.hvd.synchronize(handle) if isinstance(handle, int) else handle
    except CollectiveError as error:
        return type(error).__name__
    if call.kind == "alltoall":
        output, received = result
        return [output, received]
    return list(result) if call.tensors else [result]


def expected(call: Call, rank: int, present: tuple[int, ...] | None = None) -> list[np.ndarray]:
    """This rank's results; `present` are the ranks that have not joined (default: all)."""
    here = call.ranks if present is None else present
    rows = {r: [TORCH.wide(tensor) for tensor in inputs_of(call, r)] for r in here}
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


def difference(
    call: Call,
    rank: int,
    results: list[Any],
    wanted: list[np.ndarray],
    framework: Framework = TORCH,
) -> str:
    """Empty if the results are right, else what is wrong with them."""
    if len(results) != len(wanted):
        return f"{len(results)} results instead of {len(wanted)}"
    for index, (result, right) in enumerate(zip(results, wanted, strict=True)):
        if tuple(result.shape) != right.shape:
            return f"result {index} on rank {rank} is {tuple(result.shape)}, not {right.shape}"
        got, kind = framework.wide(result), framework.dtype(result)
        if call.dtype not in FLOATS or kind in INTEGERS:
            if kind not in MOVED:
                right = right.astype(np.int64).astype(kind).astype(np.int64)
            if not np.array_equal(got, right):
                return f"result {index} on rank {rank} is {got}, not {right}"
        else:
            scale = max(1.0, math.fabs(call.prescale * call.postscale)) * 8 * len(call.ranks)
            near = EPSILON[call.dtype] * (np.abs(right) + scale)
            if call.op == "Product" and call.dtype in ("float32", "float64"):
                # Each factor is rounded, and each product; of narrower types in float32.
                near *= len(call.ranks)
            # Products of float16 go beyond its largest number.
            overflows = np.abs(right) + near > LARGEST.get(call.dtype, np.inf)
            fine = overflows & (got == np.copysign(np.inf, right))
            if not ((np.abs(got - right) <= near) | fine).all():
                return f"result {index} on rank {rank} is off by {np.abs(got - right).max()}"
    return ""
