"""The collectives as a table, from which every framework's public functions are made.

A framework writes one function for each collective, with Horovod's parameters: it takes a tensor
and returns the result. The other forms of it are made here: `grouped_` takes a list of tensors and
carries it out as one operation, `_async` returns a handle, a trailing `_` works in place.

The gradient of a collective is a collective, by Horovod's rules:

    allreduce       the same allreduce of the gradients: op, factors and all
    allgather       the average of the gradients over the ranks, cut to this rank's rows
    broadcast       the average of the gradients over the ranks on the root, zero elsewhere
    alltoall        every rank gets the gradients of the rows back that it sent
    reducescatter   the ranks' gradients, gathered, times the factors, and times size() for Sum

The averages are Horovod's convention: the loss of the job is the mean of the ranks' losses, as
DistributedOptimizer takes it to be, and a gradient is that mean's. Only Average and Sum have a
rule: Min, Max, Product and Adasum combine tensors that require gradients, but refuse a backward
pass with a UsageError.

Backward passes communicate, so all ranks of the process set must run them, through the same
collectives in the same order. A gradient is an operation named `<name>.gradient`.
"""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from hvdtune.core.rank import collectives
from hvdtune.core.rank.collectives import ReduceOp, Reduction
from hvdtune.core.rank.variants import Function, compiled
from hvdtune.errors import UsageError


class GradientRule(enum.Enum):
    """How the gradients of the inputs follow from those of the outputs."""

    SAME = enum.auto()
    OWN_ROWS_OF_MEAN = enum.auto()
    MEAN_ON_ROOT = enum.auto()
    SENT_BACK = enum.auto()
    GATHERED = enum.auto()


@dataclass(frozen=True, eq=False)
class CollectiveSpec:
    """One collective.

    Attributes:
        name: the name of its function.
        function: starts it; has the parameter `tensors` if it has groups, else `tensor`.
        gradient: the rule of its gradient.
        how: its further argument: a "reduction", the "root_rank", the "splits", or "" for none.
        has_groups: whether there are functions that take a list of tensors.
        in_place: whether there are functions that work in place.
        keeps_shape: whether outputs have the shape of the inputs.
    """

    name: str
    function: Callable[..., int]
    gradient: GradientRule
    how: str = ""
    has_groups: bool = False
    in_place: bool = False
    keeps_shape: bool = False

    def names(self, *suffixes: str) -> list[str]:
        """The names of its functions that end in one of the suffixes, "_async_" for instance."""
        known = [s for s in suffixes if self.in_place or not s.endswith("_")]
        stems = [self.name, f"grouped_{self.name}"] if self.has_groups else [self.name]
        return [stem + suffix for stem in stems for suffix in known]

    def start(
        self,
        adapter: Any,
        tensors: Any,
        how: Any,
        name: str | None,
        process_set: Any,
        grouped: bool = False,
        *,
        in_place: bool = False,
    ) -> int:
        """Start it on a list of tensors. Returns a handle, whose result is a list for a group."""
        given = {"name": name, "process_set": process_set}
        if self.has_groups:
            given |= {"tensors": tensors, "grouped": grouped}
            outputs = {"outputs": tensors if in_place else None}
        else:
            (given["tensor"],) = tensors
            outputs = {"output": given["tensor"] if in_place else None}
        if self.how:
            given[self.how] = how
        if self.in_place:
            given |= outputs
        return self.function(adapter, **given)


ALLREDUCE: Final = CollectiveSpec(
    "allreduce",
    collectives.allreduce_async,
    GradientRule.SAME,
    "reduction",
    has_groups=True,
    in_place=True,
    keeps_shape=True,
)
ALLGATHER: Final = CollectiveSpec(
    "allgather", collectives.allgather_async, GradientRule.OWN_ROWS_OF_MEAN, has_groups=True
)
BROADCAST: Final = CollectiveSpec(
    "broadcast",
    collectives.broadcast_async,
    GradientRule.MEAN_ON_ROOT,
    "root_rank",
    in_place=True,
    keeps_shape=True,
)
ALLTOALL: Final = CollectiveSpec(
    "alltoall", collectives.alltoall_async, GradientRule.SENT_BACK, "splits"
)
REDUCESCATTER: Final = CollectiveSpec(
    "reducescatter",
    collectives.reducescatter_async,
    GradientRule.GATHERED,
    "reduction",
    has_groups=True,
)
COLLECTIVES: Final = (ALLREDUCE, ALLGATHER, BROADCAST, ALLTOALL, REDUCESCATTER)


def check_has_gradient(spec: CollectiveSpec, how: Any, name: str | None, remedy: str) -> None:
    """Raises UsageError unless a gradient flows through the collective with this `how`."""
    if isinstance(how, Reduction) and how.op not in (ReduceOp.AVERAGE, ReduceOp.SUM):
        what = f"{spec.name} {name}" if name else spec.name
        raise UsageError(
            f"{what} with op={how.op.name.title()} has no gradient, only Average and Sum have; use "
            f"{remedy} if no gradient is needed"
        )


def form_of(
    plain: Function, spec: CollectiveSpec, name: str, expression: str, order: str = ""
) -> Function:
    """The form called `name` of a framework's function `plain`.

    It has plain's parameters; `tensors` instead of `tensor` in a group, and no `compression` where
    it does not wait for the result.

    Args:
        expression: its result, with the placeholders {spec}, {tensors}, {how}, {grouped} and
            {compression}.
        order: the names of its parameters, where they are not in plain's order.
    """
    stem, _, suffix = name.partition(spec.name)
    known = dict(inspect.signature(plain).parameters)
    if suffix:
        known.pop("compression", None)
    first = known.pop("tensor")
    if stem:
        first = first.replace(name="tensors", annotation=f"Sequence[{first.annotation}]")
    known = {first.name: first, **known}
    average = "average" if "average" in known else "None"
    how = spec.how or "None"
    if how == "reduction":
        how = f"reduction_of({average}, op, prescale_factor, postscale_factor)"
    filled = expression.format(
        spec=spec.name.upper(),
        tensors="listed(tensors)" if stem else "[tensor]",
        how=how,
        grouped=bool(stem),
        compression="compression" if "compression" in known else "None",
    )
    parameters = [known[key] for key in order.split() or known]
    return compiled(plain, name, parameters, filled, _documented(spec.name, stem, suffix))


def _documented(name: str, stem: str, suffix: str) -> str:
    waiting = f"{stem}{name}{suffix.removeprefix('_async')}"
    if suffix.startswith("_async"):
        return f"Start `{waiting}` and return a handle for `poll` and `synchronize`."
    if suffix:
        what = "the tensors themselves" if stem else "the tensor itself"
        return (
            f"Perform `{stem}{name}` in place: the result replaces {what}, which must be "
            "contiguous."
        )
    return f"Perform `{name}` for several tensors in one operation and return a list."
