"""How the gradients of a step travel, without a framework: which alone, which together, and when.

Starting an operation costs microseconds, which is nothing for a gradient of a megabyte and the
whole cost of one of a kilobyte. So a large gradient is an operation of its own that starts while
the backward pass still runs, and the small ones of one dtype are packed into one tensor, a `Pack`,
that travels when the pass is over. Gradients that the user has grouped are one operation on where
they are, started when the last of them is ready. Every rank must arrange the same gradients in the
same order.
"""

from __future__ import annotations

import itertools
import re
from array import array
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from hvdtune.core.rank import handles, runtime
from hvdtune.core.rank.adapter import Ready
from hvdtune.core.rank.collectives import ReduceOp, Reduction, allreduce_request
from hvdtune.core.rank.process_sets import ProcessSet, id_of
from hvdtune.errors import CollectiveError, StepOrderError, UsageError

P = TypeVar("P", bound=Hashable)
T = TypeVar("T")
# How many groups of about equal length, or each group's parameters.
Groups = int | Sequence[Sequence[Any]]

COMBINER: Final = "_hvdtune_combiner"  # what combines gradients, as an attribute of an optimizer
SMALL_BYTES: Final = 16 << 10  # a gradient below this travels in a pack
PACK_BYTES: Final = 16 << 20  # of a pack: what is packed at the end overlaps with nothing
FLUSH_BYTES: Final = 1 << 20  # large gradients that become ready wait for each other up to this
WATCHED: Final = 32  # members of a pack whose backward passes are counted


def check_names(named: Sequence[tuple[str, object]], expected: int) -> None:
    """Raises UsageError unless there are `expected` names, all different."""
    names = [name for name, _ in named]
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise UsageError(f"parameter names must be unique; these are not: {', '.join(twice)}")
    if len(names) < expected:
        raise UsageError(
            f"named_parameters has {len(names)} names for {expected} parameters; pass "
            "model.named_parameters() of the whole model"
        )


def distinct(names: Sequence[str]) -> list[str]:
    """The names in order, where one comes again with its position after it."""
    taken: set[str] = set()
    found = []
    for number, name in enumerate(names):
        found.append(f"{name}.{number}" if name in taken else name)
        taken.add(name)
    return found


def without_counters(name: str) -> str:
    """A variable's name as all ranks have it: `dense/kernel` for `dense_3/kernel`.

    Keras counts layers by what the process has made before. A root that goes on from a file, and
    ranks with new models, would wait for each other for ever.
    """
    return re.sub(r"_\d+(?=/|$)", "", name)


def layer_and_own(path: str) -> str:
    """Of a path of Keras 3, the layer's name and the variable's own, without counters.

    In which models a layer lies is said by the path, too, but not where a model has been loaded.
    """
    return without_counters("/".join(path.split("/")[-2:]))


def variables_of(layers: Any) -> list[Any]:
    """The variables that the layers train.

    Raises:
        UsageError: one is no layer.
    """
    rows = [] if layers is None else layers if isinstance(layers, Iterable) else [layers]
    found: list[Any] = []
    for layer in rows:
        if not hasattr(layer, "trainable_weights"):
            raise UsageError(f"local_layers has {layer!r:.80}, which is no layer of Keras")
        found += layer.trainable_weights
    return found


@dataclass(frozen=True)
class Gradient(Generic[P]):
    """The gradient of one parameter. `packable`: it is dense, in host memory, of a known dtype."""

    parameter: P
    name: str
    dtype: str
    count: int
    nbytes: int
    packable: bool = True


@dataclass(frozen=True)
class Pack(Generic[P]):
    """Small gradients of one dtype, in the order in which they lie in the packed tensor."""

    members: tuple[Gradient[P], ...]

    @property
    def name(self) -> str:
        return joint_name(self.members)

    @property
    def count(self) -> int:
        return sum(member.count for member in self.members)

    def watched(self) -> list[Gradient[P]]:
        """Those whose hooks tell of a backward pass: a sample, because each call costs time."""
        stride = -(-len(self.members) // WATCHED)
        return list(self.members[::stride])


def joint_name(members: Sequence[Gradient[Any]]) -> str:
    """`weight`, or `weight+2` for it and two more."""
    first, *more = members
    return f"{first.name}+{len(more)}" if more else first.name


@dataclass(frozen=True)
class Arrangement(Generic[P]):
    """What is an operation on where it lies, alone or in a group, and what is packed."""

    groups: tuple[tuple[Gradient[P], ...], ...]
    packs: tuple[Pack[P], ...]


def arrange(
    gradients: Iterable[Gradient[P]], groups: Sequence[Sequence[Gradient[P]]] = ()
) -> Arrangement[P]:
    """Keeps the user's groups, and packs small gradients of one dtype together, in order."""
    whole = [tuple(members) for members in groups if members]
    grouped = {member.parameter for members in whole for member in members}
    packs: list[list[Gradient[P]]] = []
    filling: dict[str, tuple[list[Gradient[P]] | None, int]] = {}
    for gradient in gradients:
        if gradient.parameter in grouped:
            continue
        if not gradient.packable or gradient.nbytes >= SMALL_BYTES:
            whole.append((gradient,))
            continue
        members, filled = filling.get(gradient.dtype, (None, 0))
        if members is None or filled + gradient.nbytes > PACK_BYTES:
            members, filled = [], 0
            packs.append(members)
        members.append(gradient)
        filling[gradient.dtype] = (members, filled + gradient.nbytes)
    whole += [(members[0],) for members in packs if len(members) == 1]
    return Arrangement(tuple(whole), tuple(Pack(tuple(m)) for m in packs if len(m) > 1))


def check_groups(groups: Any, members: str) -> None:
    """Raises UsageError unless it is a number of at least 0 or a list of lists of `members`, none
    of them twice."""
    is_number = isinstance(groups, int) and groups >= 0
    is_list = isinstance(groups, list | tuple)
    if not is_number and not (is_list and all(isinstance(g, list | tuple) for g in groups)):
        raise UsageError(
            f"groups (or num_groups) is a number of at least 0 or a list of lists of {members}, "
            f"not {groups!r:.80}"
        )
    grouped_ones = [] if is_number else list(itertools.chain.from_iterable(groups))
    if len(set(map(id, grouped_ones))) < len(grouped_ones):
        raise UsageError(f"groups has one of the {members} twice")


def grouped(
    rows: Sequence[Gradient[P]],
    keys: Sequence[Hashable],
    groups: Groups,
    key_of: Callable[[Any], Hashable],
) -> list[Sequence[Gradient[P]]]:
    """The user's groups; members whose gradient is not among `rows` are left out.

    Args:
        keys: what `key_of` gives for the member of a group that has the gradient, one per row.
        groups: checked by `check_groups`.
    """
    if isinstance(groups, int):
        return split(rows, groups) if groups else []
    by_key = dict(zip(keys, rows, strict=True))
    chosen = [[key_of(member) for member in group] for group in groups]
    return [[by_key[key] for key in group if key in by_key] for group in chosen]


def split(items: Sequence[T], parts: int) -> list[Sequence[T]]:
    """The items in order, in as many runs of about the same length; the first are longer by one."""
    each, more = divmod(len(items), parts)
    bounds = [i * each + min(i, more) for i in range(parts + 1)]
    return [items[begin:end] for begin, end in itertools.pairwise(bounds)]


def passes_of(backward_passes_per_step: int) -> int:
    """Raises UsageError unless it is a whole number of at least 1."""
    if not isinstance(backward_passes_per_step, int) or backward_passes_per_step < 1:
        raise UsageError(
            "backward_passes_per_step must be a whole number of at least 1, not "
            f"{backward_passes_per_step!r}"
        )
    return backward_passes_per_step


def reduction_of_gradients(op: ReduceOp | int, predivide: float) -> Reduction:
    """How gradients are combined; `predivide` is Horovod's gradient_predivide_factor.

    Raises:
        UsageError: by none of Average, Sum and Adasum, or the factor is not above 0 or not for
            Average.
    """
    if op not in (ReduceOp.AVERAGE, ReduceOp.SUM, ReduceOp.ADASUM):
        raise UsageError(f"gradients are combined by hvd.Average, Sum or Adasum, not by op={op!r}")
    if not predivide > 0:
        raise UsageError(f"gradient_predivide_factor must be above 0, not {predivide}")
    if predivide != 1.0 and op != ReduceOp.AVERAGE:
        raise UsageError("gradient_predivide_factor needs op=Average")
    return Reduction(ReduceOp(op), 1.0 / predivide, predivide)


@dataclass
class PassBook(Generic[P]):
    """Counts backward passes per parameter since the last step.

    A gradient is due after `passes_per_step` backward passes. Owned by the optimizer, used by
    whichever thread runs its backward pass, one at a time.
    """

    passes_per_step: int
    passes: dict[P, int] = field(default_factory=dict)

    def is_due(self, parameter: P) -> bool:
        """Counts a backward pass; True when the gradient is to be sent now.

        Raises:
            StepOrderError: it was due already and `step` has not been called since.
        """
        count = self.passes.get(parameter, 0) + 1
        if count > self.passes_per_step:
            raise StepOrderError(
                "a gradient was computed more than backward_passes_per_step "
                f"({self.passes_per_step}) times before optimizer.step(); increase "
                "backward_passes_per_step to accumulate gradients locally"
            )
        self.passes[parameter] = count
        return count == self.passes_per_step

    def any_due(self) -> bool:
        """Whether a gradient has become due since the last step."""
        return any(count >= self.passes_per_step for count in self.passes.values())

    def end_step(self) -> None:
        """Starts counting anew."""
        self.passes = {}


UNKNOWN: Final = 0
DENSE: Final = 255


class Layouts(Generic[P]):
    """Which gradients are sparse: settled by all ranks, as soon as one of them has a gradient.

    A layout is DENSE, or how many dimensions of a sparse gradient are indexed; where ranks differ
    the largest counts, so that dense wins. What no rank has had a gradient of is UNKNOWN and asked
    about again at the next step. A rank that has no gradient thus knows what the others send.

    Args:
        always_dense: nothing is asked; sparse gradients become dense before they travel.
    """

    def __init__(self, process_set: ProcessSet, *, always_dense: bool) -> None:
        self._process_set = process_set
        self._layouts: dict[P, int] = {}
        self._names: dict[P, str] = {}
        self._unknown: list[P] = []
        self._default = DENSE if always_dense else UNKNOWN
        self._joins = handles.joins(id_of(process_set))

    def is_known(self, parameter: P) -> bool:
        """Whether its layout has been settled, so that its gradient may travel."""
        return not self._unknown or self._layouts[parameter] != UNKNOWN

    def add(self, gradients: Iterable[Gradient[P]]) -> None:
        """Every rank must add the same ones, between the same steps."""
        for gradient in gradients:
            self._layouts[gradient.parameter] = self._default
            self._names[gradient.parameter] = gradient.name
            if self._default == UNKNOWN:
                self._unknown.append(gradient.parameter)

    def begin_step(self) -> None:
        """Forgets what was settled before a join: a rank without data has missed it."""
        joins = handles.joins(id_of(self._process_set))
        if joins != self._joins:
            self._joins = joins
            self._layouts = dict.fromkeys(self._layouts, self._default)
            self._unknown = list(self._layouts) if self._default == UNKNOWN else []

    def settle(self, layout_of: Callable[[P], int]) -> dict[P, int]:
        """Asks all ranks about what is unknown; what is known from now on.

        Args:
            layout_of: of the gradient that a parameter has on this rank, UNKNOWN for none.

        Raises:
            CollectiveError: see hvdtune.core.rank.collectives.
        """
        unknown = self._unknown
        if not unknown:
            return {}
        codes = array("B", [layout_of(parameter) for parameter in unknown])
        name = f"layouts.{self._names[unknown[0]]}"
        largest = Reduction(ReduceOp.MAX)
        request = allreduce_request(name, [("uint8", [len(codes)])], largest, self._process_set)
        address, _ = codes.buffer_info()
        done = handles.start(request, [address], [address], [codes], lambda _: None)
        handles.synchronize(done)
        settled = {p: code for p, code in zip(unknown, codes, strict=True) if code != UNKNOWN}
        self._layouts.update(settled)
        self._unknown = [p for p in unknown if p not in settled]
        return settled


class Outbox:
    """Starts operations in batches: one call into the core for all that became ready together.

    Thread rule: as PassBook. The memory of an operation must live until `wait` returns.
    """

    def __init__(self, flush_bytes: int = FLUSH_BYTES) -> None:
        self._flush_bytes = flush_bytes
        self._collected: list[tuple[Any, Sequence[int]]] = []
        self._bytes = 0
        self._ready: list[Ready] = []
        self._started: list[tuple[Any, handles.Submitted]] = []

    def add(
        self, request: Any, addresses: Sequence[int], nbytes: int, ready: Sequence[Ready] = ()
    ) -> None:
        """Adds an operation on the memory at these addresses, one for each tensor, in place.

        Where values are on their way to it, they have arrived when all of `ready` have returned.
        """
        self._collected.append((request, addresses))
        self._ready += ready
        self._bytes += nbytes
        if self._bytes >= self._flush_bytes:
            self.flush()

    def flush(self) -> None:
        """Starts what was added.

        Raises:
            CollectiveError: the job has ended, or an operation of one of the names is in flight.
        """
        collected, self._collected, self._bytes = self._collected, [], 0
        ready, self._ready = self._ready, []
        if collected:
            native = runtime.native()
            flat = [address for _, addresses in collected for address in addresses]
            requests = [request for request, _ in collected]
            self._started.append((native, handles.submit(native, requests, flat, flat, ready)))

    def wait(self) -> None:
        """Starts what was added and returns when everything started is done.

        Raises:
            CollectiveError: the first failure, after all have ended.
        """
        self.flush()
        started, self._started = self._started, []
        failure: CollectiveError | None = None
        for native, each in started:
            try:
                handles.wait_all(native, handles.handles_of(each))
            except CollectiveError as error:
                failure = failure or error
        if failure is not None:
            raise failure
