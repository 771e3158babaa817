"""An optimizer around another one: what the wrappers that combine over ranks have in common."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import torch

from hvdtune.core.gradients.options import passes_of
from hvdtune.core.rank.collectives import ReduceOp, Reduction
from hvdtune.core.rank.process_sets import ProcessSet
from hvdtune.errors import UsageError

if TYPE_CHECKING:
    from typing_extensions import Self

Names = dict[torch.Tensor, str]


@dataclass(frozen=True)
class WrapperOptions:
    """Options of DistributedOptimizer. `groups` is a number, or the parameters of each group."""

    compression: Any
    passes_per_step: int
    reduction: Reduction
    groups: int | Sequence[Sequence[torch.Tensor]]
    sparse_as_dense: bool
    process_set: ProcessSet
    zero_copy: bool


# Attributes with which Horovod's optimizer counts and submits its operations.
_ABSENT: Final = frozenset(
    (
        "_allreduce_delay", "_allreduce_grad_async", "_grad_accs", "_grouped_allreduce_grad_async",
        "_groups", "_handles", "_make_hook", "_p_to_group", "_register_hooks",
    )
)  # fmt: skip


class Wrapper(torch.optim.Optimizer):
    """Shares state, parameter groups and hooks with the wrapped optimizer.

    An instance is of a class of its own, made by `wrap`, that also is a subclass of the wrapped
    optimizer's, so that `super().step()` is that one's.
    """

    def __init__(
        self, optimizer: torch.optim.Optimizer, names: Names, options: WrapperOptions
    ) -> None:
        # Not the base's __init__, which would make state and groups of its own.
        self.__dict__.update(optimizer.__dict__)
        # A learning rate scheduler made before has put its own `step` into the wrapped optimizer.
        self.__dict__.pop("step", None)
        self._wrapped = optimizer
        self._parameter_names = names
        self._options = options

    @property
    def backward_passes_per_step(self) -> int:
        """Number of backward passes accumulated before gradients are sent; can be set."""
        return self._options.passes_per_step

    @backward_passes_per_step.setter
    def backward_passes_per_step(self, passes: int) -> None:
        self.set_backward_passes_per_step(passes)

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Sets `backward_passes_per_step`. Raises UsageError unless it is at least 1."""
        self._options = replace(self._options, passes_per_step=passes_of(passes))

    # Programs around Horovod's optimizer read its options by these names.

    @property
    def op(self) -> ReduceOp:
        """The operation that combines gradients."""
        return self._options.reduction.op

    @property
    def gradient_predivide_factor(self) -> float:
        """Divides gradients before they are combined, and multiplies the result."""
        return self._options.reduction.postscale_factor

    @property
    def sparse_as_dense(self) -> bool:
        """Return whether sparse gradients travel as dense ones."""
        return self._options.sparse_as_dense

    @property
    def process_set(self) -> ProcessSet:
        """The ranks whose gradients are combined."""
        return self._options.process_set

    @property
    def _compression(self) -> Any:
        return self._options.compression

    @property
    def _requires_update(self) -> set[torch.Tensor]:
        return {p for p in parameters_of(self.param_groups) if p.requires_grad}

    # Called for unknown names only: the wrapped optimizer may have attributes of these names.
    def __getattr__(self, name: str) -> Any:
        if name in _ABSENT:
            raise AttributeError(
                f"hvdtune's DistributedOptimizer has no {name}, an internal attribute of "
                "Horovod's. Use synchronize(), skip_synchronize() and backward_passes_per_step"
            )
        wrapped: Any = super()
        if hasattr(wrapped, "__getattr__"):
            return wrapped.__getattr__(name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @classmethod
    def wrap(cls, optimizer: torch.optim.Optimizer, names: Names, options: WrapperOptions) -> Self:
        """Args: names: of all parameters that the optimizer has."""
        inner = type(optimizer)
        # Horovod's module: programs know a wrapped optimizer by the word in its class's name.
        kind = type(inner.__name__, (cls, inner), {"__module__": "horovod.torch.optimizer"})
        wrapper: Self = kind(optimizer, names, options)
        return wrapper

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group to the wrapped optimizer; gradients of its parameters are combined, too.

        They are named by their position: every rank must add the same groups in the same order.
        """
        super().add_param_group(param_group)
        number = len(self.param_groups) - 1
        for i, parameter in enumerate(self.param_groups[number]["params"]):
            self._parameter_names[parameter] = f"group.{number}.{i}"

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        # An owner of the wrapped optimizer, such as a scheduler, continues with the loaded state.
        for name in ("defaults", "state", "param_groups"):
            setattr(self._wrapped, name, getattr(self, name))

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Wraps a copy, for the copied parameters, which all ranks must make."""
        inner = copy.deepcopy(self._wrapped, memo)
        rows = self._parameter_names.items()
        names = {copy.deepcopy(parameter, memo): name for parameter, name in rows}
        options = self._options
        if not isinstance(options.groups, int):
            options = replace(options, groups=copy.deepcopy(options.groups, memo))
        mine: type[Self] = type(self).__mro__[1]
        return mine.wrap(inner, names, options)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise UsageError("a DistributedOptimizer cannot be pickled: use optimizer.state_dict()")

    def _step_of_wrapped(self, closure: Callable[[], Any] | None) -> Any:
        own: Any = super()
        # Many an optimizer's `step` takes none.
        return own.step() if closure is None else own.step(closure)

    def _note_step(self) -> None:
        # To a scheduler made before wrapping, the wrapped optimizer has taken this step.
        self._wrapped._opt_called = True  # type: ignore[attr-defined]


def parameters_of(groups: Sequence[dict[str, Any]]) -> list[torch.Tensor]:
    """The parameters of these parameter groups, in order."""
    return [parameter for group in groups for parameter in group["params"]]
