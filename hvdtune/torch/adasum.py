"""Adasum: adding what ranks learn, to the extent that it is not the same.

From Maleki et al., "Scaling Distributed Training with Adaptive Summation" (arXiv:2006.02924). Two
vectors a and b are combined into

    (1 - a.b / (2 |a|^2)) a  +  (1 - a.b / (2 |b|^2)) b

which is a + b where they are orthogonal, and their mean where they are equal; more than two are
combined in pairs, and so on up a tree, tensor by tensor. Any number of ranks will do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NoReturn

import torch

from hvdtune.core.rank import collectives, runtime
from hvdtune.core.rank.collectives import Scope, synchronize
from hvdtune.errors import StepOrderError
from hvdtune.torch.adapter import ADAPTER
from hvdtune.torch.wrapper import Wrapper, parameters_of

BATCH_BYTES: Final = 16 << 20  # of tensors that are one operation


class DeltaOptimizer(Wrapper):
    """Every rank takes the wrapped optimizer's step; Adasum combines by how much each has moved.

    The parameters become where they were before plus the combined delta. Nothing travels during the
    backward pass, so gradients may be accumulated, clipped and zeroed at will.
    """

    @property
    def _step_supports_amp_scaling(self) -> bool:
        """True: torch.amp.GradScaler leaves unscaling, and what to do about infinities, to `step`.

        It would otherwise not call `step` on a rank with an infinity, for which the others wait.
        """
        return True

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Changes the number and nothing else: a step takes whatever was accumulated."""
        super().set_backward_passes_per_step(passes)

    def synchronize(self) -> None:
        """Does nothing: `step` communicates."""

    def skip_synchronize(self) -> NoReturn:
        """Raises StepOrderError: with Adasum, `step` itself is what is combined."""
        raise StepOrderError(
            "skip_synchronize() cannot be used with op=hvd.Adasum, which combines what step() has "
            "changed; call optimizer.step() by itself"
        )

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Takes the wrapped optimizer's step, then moves by what all ranks' steps combine to.

        Raises:
            CollectiveError: see hvdtune.core.rank.collectives.
        """
        parameters = [p for p in parameters_of(self.param_groups) if p.requires_grad]
        here = [parameter.detach() for parameter in parameters]
        starts = [parameter.clone() for parameter in here]
        result = None if self._is_refused(parameters) else self._step_of_wrapped(closure)
        with torch.no_grad():
            deltas = [now.sub(start).contiguous() for now, start in zip(here, starts, strict=True)]
            combined = self._combine([self._parameter_names[p] for p in parameters], deltas)
            for now, start, delta in zip(here, starts, combined, strict=True):
                now.copy_(start.add_(delta))
        self._note_step()
        runtime.mark_step()
        return result

    step.hooked = True  # type: ignore[attr-defined]  # the wrapped optimizer's step runs the hooks

    def _is_refused(self, parameters: Sequence[torch.Tensor]) -> bool:
        """Does a GradScaler's part; True when a gradient is infinite: then nothing moves here."""
        found = getattr(self, "found_inf", None)
        if found is None or getattr(self._wrapped, "_step_supports_amp_scaling", False):
            return False
        scale = getattr(self, "grad_scale", None)
        # Not for the wrapped optimizer, which would refuse them; the scaler deletes both itself.
        self.found_inf = self.grad_scale = None
        if scale is not None:
            for parameter in parameters:
                if parameter.grad is not None:
                    parameter.grad.div_(scale)
        return bool(found.item())

    def _combine(self, names: list[str], deltas: list[torch.Tensor]) -> list[torch.Tensor]:
        compression, process_set = self._options.compression, self._options.process_set
        packed = [compression.compress(delta) for delta in deltas]
        whole = [tensor.contiguous() for tensor, _ in packed]
        how = self._options.reduction
        started = []
        with Scope():
            for run in _batches(whole):
                name = names[run[0]] + (f"+{len(run) - 1}" if len(run) > 1 else "")
                batch = [whole[i] for i in run]
                started.append(
                    collectives.allreduce_async(ADAPTER, batch, batch, name, how, process_set)
                )
            results = [tensor for handle in started for tensor in synchronize(handle)]
        return [
            compression.decompress(result, context)
            for result, (_, context) in zip(results, packed, strict=True)
        ]


def _batches(tensors: Sequence[torch.Tensor]) -> Iterator[list[int]]:
    batch: list[int] = []
    filled = 0
    for index, tensor in enumerate(tensors):
        nbytes = tensor.numel() * tensor.element_size()
        if batch and filled + nbytes > BATCH_BYTES:
            yield batch
            batch, filled = [], 0
        batch.append(index)
        filled += nbytes
    if batch:
        yield batch
