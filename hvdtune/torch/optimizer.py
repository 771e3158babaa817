"""The optimizer wrapper: gradients are combined while the backward pass still runs."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import functools
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import torch

from hvdtune.core.gradients.backward_passes import BackwardPassCounter, PassAgreement
from hvdtune.core.gradients.groups import Groups, check_groups, grouped
from hvdtune.core.gradients.options import check_names, passes_of, reduction_of_gradients
from hvdtune.core.gradients.plan import FlatBuffer, Gradient, arrange
from hvdtune.core.gradients.request_batcher import RequestBatcher
from hvdtune.core.gradients.sparsity import DENSE, SparsityTable
from hvdtune.core.rank import runtime
from hvdtune.core.rank.basics import Average
from hvdtune.core.rank.collectives import ReduceOp, allreduce_request
from hvdtune.core.rank.compression import compressor_of
from hvdtune.core.rank.process_sets import ProcessSet, global_process_set, id_of
from hvdtune.errors import CollectiveError, HvdtuneError, StepOrderError, UsageError
from hvdtune.torch.adapter import DTYPES
from hvdtune.torch.adasum import DeltaOptimizer
from hvdtune.torch.backward_pass import LeftGradients, PassWatch, at_end_of_pass
from hvdtune.torch.compression import Compression
from hvdtune.torch.gradients import InPlace, MakeRequest, Packed, changed_error, describe
from hvdtune.torch.sparse import Sparse, layout_of
from hvdtune.torch.wrapper import Names, Wrapper, WrapperOptions, parameters_of

Named = Iterable[tuple[str, torch.Tensor]]


def DistributedOptimizer(
    optimizer: torch.optim.Optimizer,
    named_parameters: Named | None = None,
    compression: Any = Compression.none,
    backward_passes_per_step: int = 1,
    op: ReduceOp | int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Groups | None = None,
    sparse_as_dense: bool = False,
    process_set: ProcessSet = global_process_set,
    *,
    zero_copy: bool = True,
) -> Any:
    """Wraps an optimizer so that `step` applies gradients combined over all ranks.

    A parameter's gradient is sent as soon as the backward pass has accumulated it, so communication
    overlaps the rest of the pass. Small gradients travel together when the pass is over. If the
    pass computes all gradients of the step on every rank, `backward` returns when they are
    combined, so a script may clip, unscale or read them as in one process. If it leaves some out on
    a rank, no rank waits, and `synchronize` or `step` combines them. Until then a gradient must not
    change (StepOrderError), and its storage must not be resized, which would free memory that is
    being read. The result is also an instance of the wrapped optimizer's class and shares its state
    and parameter groups.

    Args:
        optimizer: any torch optimizer.
        named_parameters: `model.named_parameters()`; names must be the same on all ranks. Left out,
            parameters are named by their position.
        compression: one of hvd.Compression, or a class of your own with `compress` and
            `decompress`; what `compress` returns is what travels. Sparse gradients travel as they
            are.
        backward_passes_per_step: passes whose gradients are accumulated locally before they are
            sent.
        op: Average, Sum, or Adasum: then each rank takes its own step and the steps are combined,
            see hvdtune.torch.adasum; the arguments about how gradients travel do not apply.
        gradient_predivide_factor: f divides gradients by f before they are combined and multiplies
            by f after; with op=Average only.
        num_groups: deprecated; `groups` as a number.
        groups: gradients that are one operation, all or nothing, started when the last of a group
            is ready: a list of lists of parameters, or how many groups of about equal length all
            parameters make up in their order. Those in no group travel as they would without.
        sparse_as_dense: makes sparse gradients (`nn.Embedding(sparse=True)`) dense to send them,
            instead of gathering their rows; the wrapped optimizer gets them sparse again.
        process_set: the ranks whose gradients are combined; the others keep theirs.
        zero_copy: gradients that are kept from step to step (`zero_grad(set_to_none=False)`) move
            into memory that the ranks of a host share. The result has the same bits either way;
            HVDTUNE_ZERO_COPY=0 switches it off for all.

    Raises:
        UsageError: an argument is not as above, or names are missing or not unique.
    """
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise UsageError(f"a torch.optim.Optimizer is needed, not {type(optimizer).__name__}")
    if isinstance(optimizer, Wrapper):
        raise UsageError("the optimizer is a DistributedOptimizer already; wrap it once")
    if num_groups != 0:
        warnings.warn("num_groups is deprecated; use groups", DeprecationWarning, stacklevel=2)
    id_of(process_set)
    parameters = parameters_of(optimizer.param_groups)
    options = WrapperOptions(
        compressor_of(compression),
        passes_of(backward_passes_per_step),
        reduction_of_gradients(op, gradient_predivide_factor),
        _groups(num_groups if groups is None else groups, parameters),
        sparse_as_dense,
        process_set,
        zero_copy,
    )
    alone = not process_set.included() or process_set.size() == 1
    by_adasum = options.reduction.op is ReduceOp.ADASUM and not alone
    kind = DeltaOptimizer if by_adasum else GradientOptimizer
    return kind.wrap(optimizer, _names_of(parameters, named_parameters), options)


@dataclasses.dataclass(slots=True)
class _Evaluation:
    """One call of a closure, until its gradients are combined: `step` may be interrupted before."""

    loss: Any = None
    is_running: bool = True  # the closure has not returned
    has_computed: bool = False  # it has, without an error


class _CombinedBy(enum.Enum):
    """The caller that combined the gradients of this step."""

    BACKWARD = enum.auto()
    STEP = enum.auto()  # or a GradScaler
    SCRIPT = enum.auto()  # by `synchronize`


class GradientOptimizer(Wrapper):
    """Combines gradients, by Average or Sum, before the wrapped optimizer's step."""

    def __init__(
        self, optimizer: torch.optim.Optimizer, names: Names, options: WrapperOptions
    ) -> None:
        super().__init__(optimizer, names, options)
        process_set = options.process_set
        self._travels = process_set.included() and process_set.size() > 1
        # By id: tensors hash slowly.
        self._passes: BackwardPassCounter[int] = BackwardPassCounter(options.passes_per_step)
        self._batcher = RequestBatcher()
        self._sparsity: SparsityTable[torch.Tensor] = SparsityTable(process_set)
        # With sparse_as_dense: how many dimensions of a gradient are indexed before and after it
        # travels.
        self._indexed_dims: dict[torch.Tensor, int] = {}
        self._rows: dict[torch.Tensor, Gradient[torch.Tensor]] = {}
        self._settled: dict[torch.Tensor, int] = {}  # the layouts that are not arranged yet
        self._operations: dict[torch.Tensor, InPlace | Sparse] = {}
        self._packed: list[Packed] = []
        self._frozen: list[torch.Tensor] = []
        self._should_synchronize = True
        self._in_flight = False  # everything is sent, and not everything received
        self._combined: _CombinedBy | None = None
        self._agreement = PassAgreement(options.process_set)
        self._left = LeftGradients()  # by the last pass, where it did not combine them
        self._changed: torch.Tensor | None = None  # the parameter of one that changed since
        self._is_updating = False  # the wrapped optimizer's step has begun and not ended
        self._evaluation: _Evaluation | None = None  # the one of `step`'s closure that has begun
        self.pass_watch = PassWatch(self)
        _watch_scalers()
        if self._travels:
            self._travel_with(parameters_of(self.param_groups), options.groups)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        super().add_param_group(param_group)
        if self._travels:
            self._travel_with(parameters_of(self.param_groups[-1:]))

    def _travel_with(self, parameters: Sequence[torch.Tensor], groups: Groups = 0) -> None:
        self._frozen += [p for p in parameters if not p.requires_grad]
        compression = self._options.compression
        names = self._parameter_names
        rows = {p: describe(p, names[p], compression) for p in parameters if p.requires_grad}
        self._rows.update(rows)
        self._sparsity.add(rows.values())
        chosen = grouped([*rows.values()], [id(p) for p in rows], groups, id)
        plan = arrange(rows.values(), chosen)
        for members in plan.groups:
            self._operations.update(self._operation_on(members))
            for row in members:
                self.pass_watch.hook_large(row.parameter)
        for pack in plan.flat_buffers:
            self._packed.append(self._pack(pack))
            for row in pack.members:
                self.pass_watch.hook_small(row.parameter)

    def _operation_on(self, rows: Sequence[Gradient[torch.Tensor]]) -> dict[torch.Tensor, InPlace]:
        """One operation on the gradients of these parameters, by parameter."""
        options = self._options
        operation = InPlace(
            rows, self._make_request, options.compression, zero_copy=options.zero_copy
        )
        return dict.fromkeys((row.parameter for row in rows), operation)

    def _pack(self, pack: FlatBuffer[torch.Tensor]) -> Packed:
        dtype = _TORCH_DTYPES[pack.members[0].dtype]
        return Packed(pack, dtype, self._make_request, zero_copy=self._options.zero_copy)

    @property
    def _make_request(self) -> MakeRequest:
        reduction, process_set = self._options.reduction, self._options.process_set
        return lambda name, tensors, gpu: allreduce_request(
            name, tensors, reduction, process_set, gpu
        )

    def begin_pass(self, parameter: torch.Tensor) -> None:
        """Refuses a pass for which the gradients are not ready; see PassObserver."""
        if self._in_flight:
            raise StepOrderError(
                "loss.backward() was called after optimizer.step() or optimizer.synchronize() "
                "was interrupted: gradients are still being combined, so call that function "
                "again first"
            )
        if self._combined is _CombinedBy.BACKWARD:
            raise self._computed_again(parameter)
        changed = self._left.changed_besides(parameter)
        if changed is not None:
            raise changed_error(self._parameter_names[changed])
        self._combined = None
        if not self._passes.passes:
            self._sparsity.begin_step()

    def gradient_ready(self, parameter: torch.Tensor) -> None:
        """Sends what this gradient completes; see PassObserver."""
        count = self._passes.add(id(parameter))
        if count > self._passes.passes_per_step:
            raise self._computed_again(parameter)
        if count < self._passes.passes_per_step:
            return
        operation = self._operations.get(parameter)
        if operation is None or not self._sparsity.is_known(parameter):
            return
        if operation.is_complete(parameter):
            operation.send(self._batcher)

    def end_pass(self) -> None:
        """Combines the gradients if the pass has computed the last of them; see PassObserver."""
        again = self._passes.add_all(self.pass_watch.take_computed())
        if again is not None:
            raise self._computed_again(next(p for p in self._rows if id(p) == again))
        if self._is_complete():
            # Every optimizer of this pass asks, and then sends, before one of them waits: the ranks
            # may have them in different orders.
            with contextlib.suppress(HvdtuneError):  # raised again by `_combine_if_agreed`
                self._agreement.ask(self._question, is_complete=True)
            at_end_of_pass(self._combine_if_agreed)
            return
        if self._passes.any_due():
            self._agreement.postpone(self._question)
        self._left.note([*self._rows, *self._frozen])

    def _combine_if_agreed(self) -> None:
        """Combines the gradients unless the pass has left one out on some rank."""
        with self._forgetting_failed():
            self._agreement.ask(self._question, is_complete=True)
            is_agreed = self._agreement.answer()
        if not is_agreed:
            self._left.note([*self._rows, *self._frozen])
            return
        self._left.clear()
        with contextlib.suppress(HvdtuneError):  # raised again by `_combine`
            self._send()
            self._in_flight = True
        at_end_of_pass(lambda: self._combine(_CombinedBy.BACKWARD))

    @property
    def _question(self) -> str:
        return f"complete.{next(iter(self._rows.values())).name}"

    def _is_complete(self) -> bool:
        """Return whether no gradient of this step can be missing on this rank."""
        due = self._passes.passes
        if not self._passes.all_due():
            return False
        if len(due) < len(self._rows) and not all(
            id(p) in due or not p.requires_grad or self._sparsity.is_unused(p) for p in self._rows
        ):
            return False
        return not any(p.requires_grad and p.grad is None for p in self._frozen)

    def _computed_again(self, parameter: torch.Tensor) -> StepOrderError:
        return StepOrderError(
            f"The gradient of {self._parameter_names[parameter]} was computed again before "
            f"optimizer.step(), and backward_passes_per_step is {self._passes.passes_per_step}. "
            "If backward() of another model filled it, call requires_grad_(False) on the "
            "parameters for that pass, or this optimizer's zero_grad() after it. To accumulate "
            "gradients of several backward() calls, increase backward_passes_per_step."
        )

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Changes how many backward passes are accumulated before gradients are sent."""
        super().set_backward_passes_per_step(passes)
        self._passes.passes_per_step = passes

    def synchronize(self) -> None:
        """Waits until every gradient holds the combined value; `step` does it by itself.

        Does nothing if `backward` or a GradScaler has combined them. A parameter without a gradient
        on this rank contributes zeros, so that ranks whose passes used different branches agree.

        When a signal handler raises while this or `backward` waits (Ctrl-C, a time limit),
        gradients stay in flight and keep their memory: `synchronize` or `step` called again
        continues, `load_state_dict` waits and gives the step up, `zero_grad` and `backward` raise
        StepOrderError. The other ranks get this rank's gradients in any case, even when the
        optimizer and the model are dropped.

        Raises:
            StepOrderError: a gradient was changed before or while it was combined.
            CollectiveError: see hvdtune.core.rank.collectives.
        """
        if self._combined in (None, _CombinedBy.SCRIPT):
            self._combine(_CombinedBy.SCRIPT)
        else:
            self._combined = _CombinedBy.SCRIPT

    def _combine(self, by: _CombinedBy) -> None:
        if not self._travels:
            self._travel_if_others_came()
        if not self._travels:
            self._combined = None
            return
        with self._forgetting_failed():
            if not self._in_flight:
                self._agreement.ask(self._question, is_complete=True)
                self._send()
                self._in_flight = True
            travelling = self._travelling()
            self._batcher.wait()
            self._agreement.answer()
            for each in travelling:
                each.receive()
            if self._changed is not None:  # not before: the other ranks wait for the gradients
                raise changed_error(self._parameter_names[self._changed])
        for each in travelling:
            each.end_step()
        self._end_passes()
        self._make_sparse_again()
        self._combined = by
        self._in_flight = False

    @contextlib.contextmanager
    def _forgetting_failed(self) -> Iterator[None]:
        """Gives up the step if the block fails."""
        try:
            yield
        except HvdtuneError:
            with contextlib.suppress(HvdtuneError):
                self._batcher.wait()  # for gradients that were sent before the failure
            self._forget_step()
            raise

    def _end_passes(self) -> None:
        self._passes.end_step()
        self._agreement.drop()
        self.pass_watch.computed.clear()
        self._left.clear()
        self._changed = None

    def _travel_if_others_came(self) -> None:
        """A rank that was alone when it wrapped the optimizer may be in a larger job by now."""
        process_set = self._options.process_set
        if process_set.included() and process_set.size() > 1:
            self._travels = True
            self._travel_with(parameters_of(self.param_groups), self._options.groups)

    def _send(self) -> None:
        if self._changed is None:
            self._changed = self._left.changed()
        self._left.clear()  # from here on, this may change gradients itself
        self._take_unfrozen()
        self._sparsity.begin_step()
        self._settled.update(self._sparsity.settle(layout_of))
        if self._settled:
            self._note_layouts(self._settled)
        for packed in self._packed:
            packed.send(self._batcher)
        for operation in dict.fromkeys(self._operations.values()):
            if not operation.sent and operation.is_trained():
                operation.send(self._batcher)

    def _travelling(self) -> list[Packed | InPlace | Sparse]:
        return [*self._packed, *dict.fromkeys(self._operations.values())]

    def _forget_step(self) -> None:
        """Gives up a step that the batcher no longer has."""
        self._in_flight = self._is_updating = False
        self._combined = self._evaluation = None
        self._end_passes()
        for packed in self._packed:
            packed.end_step()
        for operation in dict.fromkeys(self._operations.values()):
            operation.forget()

    def _take_unfrozen(self) -> None:
        if any(parameter.requires_grad for parameter in self._frozen):
            frozen, self._frozen = self._frozen, []
            self._travel_with(frozen)

    def _note_layouts(self, settled: dict[torch.Tensor, int]) -> None:
        indexed = {parameter: dims for parameter, dims in settled.items() if dims != DENSE}
        if not self._options.sparse_as_dense:
            self._arrange_anew(settled, set(indexed))
            return
        for parameter in settled:  # before a join
            self._indexed_dims.pop(parameter, None)
        self._indexed_dims.update(indexed)
        self._settled = {}

    def _make_sparse_again(self) -> None:
        """Gives gradients that were made dense to travel the layout in which they were computed.

        So the wrapped optimizer gets the same layout as on one rank; SparseAdam requires it.
        """
        for parameter, dims in self._indexed_dims.items():
            gradient = parameter.grad
            if gradient is not None and gradient.layout is torch.strided:
                parameter.grad = gradient.to_sparse(dims)

    def _arrange_anew(self, settled: dict[torch.Tensor, int], sparse: set[torch.Tensor]) -> None:
        """Sends sparse gradients by their rows, out of the packs and groups that they were in.

        Changes everything at once: a signal handler may raise before.
        """
        op, process_set = self._options.reduction.op, self._options.process_set
        operations = dict(self._operations)
        packs: list[Packed] = []
        for parameter in settled:
            if isinstance(operations.get(parameter), Sparse):  # before a join
                operations.update(self._operation_on([self._rows[parameter]]))
        for operation in dict.fromkeys(operations.values()):
            rest = [row for row in operation.members if row.parameter not in sparse]
            if 0 < len(rest) < len(operation.members):
                operations.update(self._operation_on(rest))
        for parameter in sparse:
            row = self._rows[parameter]
            operations[parameter] = Sparse(row, settled[parameter], op, process_set)
        for packed in self._packed:
            rest = [row for row in packed.members if row.parameter not in sparse]
            if len(rest) == len(packed.members):
                packs.append(packed)
            elif rest:
                packs.append(self._pack(FlatBuffer(tuple(rest))))
        self._operations, self._packed, self._settled = operations, packs, {}

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Let `step` in the block not synchronize, because the script did, to clip gradients."""
        self._should_synchronize = False
        try:
            yield
        finally:
            self._should_synchronize = True

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Waits for the combined gradients, then takes the wrapped optimizer's step.

        With a closure, the gradients of each of its evaluations are combined. It must compute as
        often on every rank. When a signal handler raises while this waits, see `synchronize`: a
        closure whose gradients are in flight is not called again.

        Raises:
            StepOrderError: the last call was interrupted, or failed, while the wrapped optimizer
                changed parameters, or while its closure computed gradients; or see `synchronize`.
            CollectiveError: see hvdtune.core.rank.collectives.
        """
        if self._is_updating and (self._evaluation is not None or not self._passes.passes):
            raise StepOrderError(
                "the last optimizer.step() was interrupted or failed while it changed parameters, "
                "so parameters and optimizer state may be inconsistent: load a checkpoint "
                "or broadcast both from another rank, then call optimizer.zero_grad()"
            )
        if closure is not None:
            closure = self._combining(closure)
        else:
            if self._should_synchronize:
                self._synchronize_once()
            self._is_updating = True
        result = self._step_of_wrapped(closure)
        self._is_updating = False
        self._combined = self._evaluation = None
        self._note_step()
        runtime.mark_step()
        return result

    step.hooked = True  # type: ignore[attr-defined]  # the wrapped optimizer's step runs the hooks

    def _synchronize_once(self) -> None:
        if self._combined is _CombinedBy.SCRIPT:
            warnings.warn(
                "optimizer.step() called without optimizer.skip_synchronize() after "
                "optimizer.synchronize(): the gradients are combined a second time",
                stacklevel=3,
            )
            self._combine(_CombinedBy.STEP)
        else:
            self._combine_for_step()

    def combine_for_scaler(self) -> None:
        """Combines the gradients unless they are combined, for GradScaler."""
        if self._should_synchronize:
            self._combine_for_step()

    def _combine_for_step(self) -> None:
        if self._combined is None:
            self._combine(_CombinedBy.STEP)
        elif self._combined is _CombinedBy.BACKWARD:
            self._combined = _CombinedBy.STEP

    def _combining(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        def evaluate() -> Any:
            evaluation = self._evaluation
            if evaluation is None or not evaluation.has_computed:
                evaluation = self._evaluate(closure)
            if self._in_flight or self._should_synchronize or self._passes.passes:
                self._combine_for_step()
            return self._end(evaluation)

        return evaluate

    def _evaluate(self, closure: Callable[[], Any]) -> _Evaluation:
        if self._evaluation is not None and (self._passes.passes or self._combined is not None):
            raise StepOrderError(
                "the last optimizer.step(closure) was interrupted or failed while the closure "
                "computed gradients, and some of them are already being combined. Call "
                "optimizer.synchronize(), which sends the gradients to the other ranks, and "
                "optimizer.zero_grad(), then continue as the other ranks do after that step"
            )
        self._evaluation = evaluation = _Evaluation()
        try:
            evaluation.loss = closure()
        finally:
            evaluation.is_running = False
        evaluation.has_computed = True
        return evaluation

    def _end(self, evaluation: _Evaluation) -> Any:
        """The wrapped optimizer has the loss, and changes parameters from now on."""
        self._is_updating = True
        self._evaluation = None
        return evaluation.loss

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the wrapped optimizer's state; a step that began or failed is forgotten."""
        with contextlib.suppress(CollectiveError):
            self._batcher.wait()
        self._forget_step()
        super().load_state_dict(state_dict)

    def zero_grad(self, *given: Any, **options: Any) -> None:
        """Call the wrapped optimizer's `zero_grad` with these arguments.

        Raises:
            StepOrderError: there are gradients that are not combined yet.
        """
        if self._passes.passes or self.pass_watch.computed or self._in_flight:
            raise self._zeroed_too_early()
        self._combined = None
        if self._evaluation is None or not self._evaluation.is_running:
            self._is_updating = False
            self._evaluation = None
        super().zero_grad(*given, **options)

    def _zeroed_too_early(self) -> StepOrderError:
        computed = {*self._passes.passes, *self.pass_watch.computed}
        first = next((row.name for p, row in self._rows.items() if id(p) in computed), "parameters")
        return StepOrderError(
            "optimizer.zero_grad() was called after loss.backward() but before optimizer.step() or "
            f"optimizer.synchronize(): the gradient of {first} is still being combined. After a "
            "backward() that raised, call optimizer.synchronize() on all ranks. If backward() of "
            "another model filled it, call requires_grad_(False) on the parameters "
            "for that pass."
        )


@functools.cache
def _watch_scalers() -> None:
    """Lets every torch.amp.GradScaler combine gradients before it unscales or looks at them.

    So an infinity on one rank is one on all, and all skip the step. A scaler's changes are not
    found otherwise: they make no new version of a gradient.
    """
    scaler: Any = torch.amp.GradScaler
    unscale = scaler._unscale_grads_

    @functools.wraps(unscale)
    def combine_and_unscale(self: Any, optimizer: Any, *arguments: Any, **options: Any) -> Any:
        if isinstance(optimizer, GradientOptimizer):
            optimizer.combine_for_scaler()
        return unscale(self, optimizer, *arguments, **options)

    scaler._unscale_grads_ = combine_and_unscale


_TORCH_DTYPES: Final = {name: dtype for dtype, name in DTYPES.items()}


def _groups(groups: Any, parameters: Sequence[torch.Tensor]) -> Groups:
    check_groups(groups, "parameters")
    if isinstance(groups, int):
        return groups
    known = set(parameters)
    for member in (member for group in groups for member in group):
        if not isinstance(member, torch.Tensor):
            raise UsageError(f"groups must contain parameters, not {type(member).__name__}")
        if member not in known:
            raise UsageError("groups contains a tensor that is not a parameter of the optimizer")
    return [list(group) for group in groups]


def _names_of(parameters: list[torch.Tensor], named: Named | None) -> Names:
    names = {parameter: f"noname.{i}" for i, parameter in enumerate(parameters)}
    if named is None:
        return names
    rows = list(named) if isinstance(named, Iterable) else [named]
    if not all(
        isinstance(row, tuple) and len(row) == 2 and isinstance(row[0], str) for row in rows
    ):
        raise UsageError(
            "named_parameters is a sequence of tuples (name, parameter): model.named_parameters()"
        )
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    check_names(rows, len(trained))
    given = {parameter: name for name, parameter in rows}
    if not given.keys() >= set(trained):
        raise UsageError(
            "named_parameters lacks some of the optimizer's parameters; pass "
            "model.named_parameters() of the whole model"
        )
    return {parameter: given.get(parameter, names[parameter]) for parameter in parameters}
