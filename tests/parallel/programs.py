"""Random programs of collectives: how they are drawn, and how a rank carries one out.

A program is a few phases. In a phase every rank starts its calls, in whatever order, then all meet
in the phase's end if it has one (a barrier or a join of one process set), then wait for results.
Nothing else keeps the ranks in step, so one may be phases ahead of another.
"""

import dataclasses
import hashlib
import math
import random
import time
from typing import Any

import torch
from hypothesis import strategies as st

import hvdtune.torch as hvd
from hvdtune.core.config.knobs import Knob, default_setting, load_knobs
from hvdtune.core.rank import runtime
from tests.contract.calls import (
    FLOATS,
    INTEGERS,
    Call,
    difference,
    expected,
    finish,
    start,
)

ENDS = ("", "", "barrier", "join")


@dataclasses.dataclass(frozen=True)
class Phase:
    """`end` is "", "barrier" or "join" on `end_set`: -1 for all ranks, else an index into the sets.

    Before a join, a rank starts only the first `stays[rank]` calls of the phase: then it joins.
    """

    calls: tuple[Call, ...]
    end: str = ""
    end_set: int = -1
    stays: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True)
class Program:
    """`sets` are made before the phases and removed after; `chaos` seeds orders and settings."""

    size: int
    sets: tuple[tuple[int, ...], ...]
    phases: tuple[Phase, ...]
    chaos: int

    def ranks_of(self, index: int) -> tuple[int, ...]:
        return tuple(range(self.size)) if index < 0 else self.sets[index]


@st.composite
def programs(draw: st.DrawFn, size: int) -> Program:
    ranks = st.integers(0, size - 1)
    subsets = st.lists(ranks, min_size=1, max_size=size - 1, unique=True)
    ordered = subsets.map(lambda members: tuple(sorted(members)))
    sets = tuple(draw(st.lists(ordered, max_size=2, unique=True))) if size > 1 else ()
    bare = Program(size, sets, (), draw(st.integers(0, 2**32)))
    phases = draw(st.lists(_phase(bare), min_size=1, max_size=3))
    return dataclasses.replace(bare, phases=tuple(phases))


@st.composite
def _phase(draw: st.DrawFn, program: Program) -> Phase:
    end = draw(st.sampled_from(ENDS))
    end_set = draw(st.integers(-1, len(program.sets) - 1))
    if end == "join":
        calls = draw(st.lists(_call_beside_a_join(program.ranks_of(end_set)), max_size=6))
        stays = tuple(draw(st.integers(0, len(calls))) for _ in range(program.size))
        return Phase(tuple(calls), end, end_set, _allowed(calls, stays))
    where = st.integers(-1, len(program.sets) - 1).map(program.ranks_of)
    calls = draw(st.lists(where.flatmap(_call), max_size=8))
    return Phase(tuple(calls), end, end_set)


def _allowed(calls: list[Call], stays: tuple[int, ...]) -> tuple[int, ...]:
    """The same, but a root stays until its last broadcast."""
    needed = list(stays)
    for index, call in enumerate(calls):
        if call.kind == "broadcast":
            needed[call.root] = max(needed[call.root], index + 1)
    return tuple(needed)


_shapes = st.one_of(
    st.just(()),
    st.lists(st.integers(0, 5), min_size=1, max_size=3).map(tuple),
    st.integers(1, 70_000).map(lambda count: (count,)),
)


@st.composite
def _call(draw: st.DrawFn, ranks: tuple[int, ...]) -> Call:
    kind = draw(
        st.sampled_from(["allreduce"] * 3 + ["allgather", "broadcast", "alltoall", "reducescatter"])
    )
    call = draw(_details(kind, ranks))
    if len(ranks) > 1 and draw(st.integers(0, 15)) == 0:
        return dataclasses.replace(call, disagreeing=draw(st.sampled_from(ranks)))
    return call


@st.composite
def _call_beside_a_join(draw: st.DrawFn, ranks: tuple[int, ...]) -> Call:
    kind = draw(st.sampled_from(["allreduce"] * 3 + ["allgather", "broadcast"]))
    call = draw(_details(kind, ranks))
    if call.op in ("Min", "Max", "Product"):
        return dataclasses.replace(call, prescale=1.0)  # a scaled neutral element is none
    return dataclasses.replace(call, op="Sum" if call.op == "Adasum" else call.op)


@st.composite
def _details(draw: st.DrawFn, kind: str, ranks: tuple[int, ...]) -> Call:
    dtype = draw(st.sampled_from((*FLOATS, "float32", *INTEGERS, "bool")))
    ops = ["Sum", "Average"] if kind == "reducescatter" else ["Sum", "Average", "Min", "Max"]
    if kind == "allreduce":
        ops += ["Product"] + (["Adasum"] if dtype in FLOATS else [])
    op = draw(st.sampled_from(ops)) if dtype != "bool" else "Max" if kind == "allreduce" else "Sum"
    scales = st.sampled_from([1.0, 1.0, 0.5, 3.0] if dtype in FLOATS else [1.0])
    shape = draw(_shapes)
    if kind in ("allgather", "alltoall", "reducescatter"):
        shape = shape or (3,)
    plain_only = kind in ("alltoall", "broadcast")
    may_be_in_place = kind in ("allreduce", "broadcast")
    return Call(
        kind=kind,
        ranks=ranks,
        dtype=dtype,
        shape=shape,
        op=op,
        tensors=0 if plain_only else draw(st.sampled_from([0, 0, 1, 3])),
        prescale=draw(scales) if kind in ("allreduce", "reducescatter") else 1.0,
        postscale=draw(scales) if kind in ("allreduce", "reducescatter") else 1.0,
        root=draw(st.sampled_from(ranks)),
        seed=draw(st.integers(0, 2**20)),
        strided=draw(st.booleans()),
        in_place=may_be_in_place and draw(st.booleans()),
    )


# The others fold contributions in an order of their own; see docs/decisions/transport.md.
SAME_BITS = ("auto", "auto", "direct", "doubling", "chain")


def random_value(knob: Knob, chaos: random.Random) -> Any:
    if knob.kind == "category":
        return chaos.choice(SAME_BITS)
    if knob.kind == "bool":
        return chaos.random() < 0.5
    if not knob.log:
        value = chaos.uniform(knob.low, knob.high)
    elif chaos.random() < 0.1:
        value = knob.low
    else:
        low = max(knob.low, knob.high / 2**20)
        value = math.exp(chaos.uniform(math.log(low), math.log(knob.high)))
    value = min(max(value, knob.low), knob.high)
    return int(value) if knob.kind == "int" else value


def random_setting(chaos: random.Random) -> dict[str, Any]:
    """Draw a value for every knob that can change while a job runs, with short cycle times."""
    setting = {
        knob.name: random_value(knob, chaos) for knob in load_knobs() if knob.scope == "live"
    }
    setting["cycle_time_ms"] = min(setting["cycle_time_ms"], 2.0)
    return setting


class Run:
    """One rank's way through a program, plainly or in a random order under random settings."""

    def __init__(self, program: Program, label: str, *, chaotic: bool) -> None:
        self._program = program
        self._label = label
        self._chaotic = chaotic
        self._chaos = random.Random(program.chaos * 64 + hvd.rank())
        self._sets: list[Any] = []

    def run(self) -> tuple[dict[str, str], dict[str, str]]:
        """Digests of the results by call, and what is wrong with those that are wrong."""
        digests: dict[str, str] = {}
        wrong: dict[str, str] = {}
        if hvd.rank() == 0 and not self._chaotic:
            runtime.propose(default_setting())
        self._sets = [hvd.add_process_set(list(ranks)) for ranks in self._program.sets]
        for number, phase in enumerate(self._program.phases):
            for key, call, present, results in self._phase(phase, f"{self._label}.{number}"):
                digests[key] = results if isinstance(results, str) else digest(results)
                problem = verdict(call, present, results)
                if problem:
                    wrong[key] = problem
        for process_set in self._sets:
            hvd.remove_process_set(process_set)
        return digests, wrong

    def _set_of(self, ranks: tuple[int, ...]) -> Any:
        if len(ranks) == self._program.size:
            return hvd.global_process_set
        return self._sets[self._program.sets.index(ranks)]

    def _phase(self, phase: Phase, label: str) -> list[tuple[str, Call, tuple[int, ...], Any]]:
        members = self._program.ranks_of(phase.end_set)
        mine = []
        for index, call in enumerate(phase.calls):
            present = call.ranks
            if phase.end == "join":
                present = tuple(r for r in call.ranks if phase.stays[r] > index)
            if hvd.rank() in present:
                mine.append((f"{label}.{index}", call, present))
        self._shuffle(mine)
        handles = {}
        for key, call, _ in mine:
            self._dawdle()
            # The name without the label is used again, so that cached responses are met as well.
            handles[key] = start(call, key.partition(".")[2], self._set_of(call.ranks))
        if phase.end and hvd.rank() in members:
            meet = {"barrier": hvd.barrier, "join": hvd.join}[phase.end]
            meet(process_set=self._set_of(members))
        self._shuffle(mine)
        return [(key, call, present, finish(call, handles[key])) for key, call, present in mine]

    def _shuffle(self, rows: list[Any]) -> None:
        if self._chaotic:
            self._chaos.shuffle(rows)

    def _dawdle(self) -> None:
        if self._chaotic and self._chaos.random() < 0.15:
            time.sleep(self._chaos.uniform(0, 0.003))
        if self._chaotic and hvd.rank() == 0 and self._chaos.random() < 0.3:
            runtime.propose(random_setting(self._chaos))


def verdict(call: Call, present: tuple[int, ...], results: list[torch.Tensor] | str) -> str:
    if call.disagreeing is not None:
        return "" if results == "MismatchError" else f"{results} instead of a MismatchError"
    if isinstance(results, str):
        return results
    return difference(call, hvd.rank(), results, expected(call, hvd.rank(), present))


def digest(results: list[torch.Tensor]) -> str:
    state = hashlib.sha256()
    for tensor in results:
        state.update(str((tensor.dtype, tuple(tensor.shape))).encode())
        state.update(tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return state.hexdigest()
