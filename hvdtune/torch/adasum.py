"""Adasum: adding what ranks learn, to the extent that it is not the same.

From Maleki et al., "Scaling Distributed Training with Adaptive Summation" (arXiv:2006.02924). Two
vectors a and b are combined into

    (1 - a.b / (2 |a|^2)) a  +  (1 - a.b / (2 |b|^2)) b

which is a + b where they are orthogonal, and their mean where they are equal; more than two are
combined in pairs, and so on up a tree, tensor by tensor. Any number of ranks will do.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NoReturn

import torch

from hvdtune.core.rank import collectives, runtime
from hvdtune.core.rank.in_flight import Batch, abandon
from hvdtune.core.rank.process import PROCESS
from hvdtune.errors import CollectiveError, HvdtuneError, StepOrderError
from hvdtune.torch.adapter import ADAPTER
from hvdtune.torch.wrapper import Wrapper, WrapperOptions, parameters_of

BATCH_BYTES: Final = 16 << 20  # of tensors that are one operation


class DeltaOptimizer(Wrapper):
    """Every rank takes the wrapped optimizer's step; Adasum combines by how much each has moved.

    The parameters become where they were before plus the combined delta. Nothing travels during the
    backward pass, so gradients may be accumulated, clipped and zeroed at will.
    """

    _combining: _Combining | None = None

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
        """Raises StepOrderError: with Adasum, `step` itself combines."""
        raise StepOrderError(
            "skip_synchronize() cannot be used with op=hvd.Adasum, which combines the changes "
            "of step(); call only optimizer.step()"
        )

    def zero_grad(self, *given: Any, **options: Any) -> None:
        """Call the wrapped optimizer's `zero_grad` with these arguments.

        Raises:
            StepOrderError: a `step` that was interrupted has not ended.
        """
        if self._combining is not None:
            raise StepOrderError(
                "optimizer.zero_grad() was called after an interrupted optimizer.step(): the "
                "other ranks already have this rank's part; call optimizer.step() again"
            )
        super().zero_grad(*given, **options)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the wrapped optimizer's state; a step that was interrupted is forgotten."""
        if self._combining is not None:
            with contextlib.suppress(CollectiveError):
                self._combining.wait()
            self._combining = None
        super().load_state_dict(state_dict)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Takes the wrapped optimizer's step, then moves by what all ranks' steps combine to.

        When a signal handler raises while this waits (Ctrl-C, a time limit), call it again: it goes
        on where it was. Until then the parameters have moved by this rank's step alone.

        Raises:
            CollectiveError: see hvdtune.core.rank.collectives.
        """
        if self._combining is None:
            self._combining = self._begin(closure)
        combining = self._combining
        try:
            combining.wait()
        except HvdtuneError:
            self._combining = None
            raise
        combining.move()
        self._combining = None
        self._note_step()
        runtime.mark_step()
        return combining.result

    def _begin(self, closure: Callable[[], Any] | None) -> _Combining:
        """Takes this rank's step. Whatever raises, the parameters are where they were then."""
        parameters = [p for p in parameters_of(self.param_groups) if p.requires_grad]
        here = [parameter.detach() for parameter in parameters]
        starts = [parameter.clone() for parameter in here]
        try:
            result = None if self._is_refused(parameters) else self._step_of_wrapped(closure)
            deltas = [now.sub(start).contiguous() for now, start in zip(here, starts, strict=True)]
            names = [self._parameter_names[parameter] for parameter in parameters]
            return _Combining(here, starts, names, deltas, self._options, result)
        except BaseException:
            for now, start in zip(here, starts, strict=True):
                now.copy_(start)
            raise

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


class _Combining:
    """One step's deltas, from this rank's own step until the parameters have moved by all ranks'.

    Every method may be interrupted, and called again.
    """

    def __init__(
        self,
        here: Sequence[torch.Tensor],
        starts: Sequence[torch.Tensor],
        names: Sequence[str],
        deltas: Sequence[torch.Tensor],
        options: WrapperOptions,
        result: Any,
    ) -> None:
        """Args: here, starts: the parameters, and where they were; result: of the closure."""
        self._batch = Batch()
        self.result = result
        self._here, self._starts = here, starts
        self._compression = options.compression
        packed = [options.compression.compress(delta) for delta in deltas]
        self._contexts = [context for _, context in packed]
        self._parts = []
        whole = [tensor.contiguous() for tensor, _ in packed]
        for run in _batches(whole):
            name = names[run[0]] + (f"+{len(run) - 1}" if len(run) > 1 else "")
            tensors = [whole[i] for i in run]
            part = collectives.prepare_allreduce(
                ADAPTER, tensors, tensors, name, options.reduction, options.process_set
            )
            self._batch.add(
                part.request, part.inputs, part.outputs, part.owners, part.ready, part.gpu
            )
            self._parts.append(part)

    def wait(self) -> None:
        """Returns when all ranks' deltas have been combined.

        Raises:
            CollectiveError: see hvdtune.core.rank.collectives.
        """
        if self._parts:
            self._batch.submit(PROCESS.native())
            self._batch.finish()

    @torch.no_grad()
    def move(self) -> None:
        """Puts the parameters where they were before plus the combined delta."""
        combined = [tensor for part in self._parts for tensor in part.finish()]
        for now, start, tensor, context in zip(
            self._here, self._starts, combined, self._contexts, strict=True
        ):
            now.copy_(start + self._compression.decompress(tensor, context))

    def __del__(self) -> None:
        abandon([self._batch])


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
