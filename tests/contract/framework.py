"""What the contract suite needs to know of a framework whose binding it tests.

To bind another one: write a class, add it to FRAMEWORKS.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import torch

import hvdtune.torch


class Framework(Protocol):
    """Its tensors, and `hvd`, its hvdtune module. One object per framework, without state.

    dtypes are NumPy names or "bfloat16".
    """

    name: str
    hvd: Any

    def tensor(self, values: np.ndarray, dtype: str) -> Any:
        """A tensor of this dtype, rounded where it must be."""

    def strided(self, tensor: Any) -> Any:
        """The same values in another order in memory, where the framework knows such tensors."""

    def wide(self, tensor: Any) -> np.ndarray:
        """Its values, in float64 or int64."""

    def dtype(self, tensor: Any) -> str:
        """The name of its dtype."""

    def gradients(
        self,
        function: Callable[[list[Any]], Sequence[Any]],
        inputs: Sequence[np.ndarray],
        weights: Callable[[int, tuple[int, ...]], np.ndarray],
    ) -> list[np.ndarray]:
        """Derivatives by float64 inputs of the sum of weights(i, shape) * output i."""


class Torch:
    name = "torch"
    hvd = hvdtune.torch

    def tensor(self, values: np.ndarray, dtype: str) -> torch.Tensor:
        tensor = torch.empty(values.shape, dtype=getattr(torch, dtype))
        return tensor.copy_(torch.tensor(values))

    def strided(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.dim() < 2:
            return tensor
        return tensor.transpose(0, 1).contiguous().transpose(0, 1)

    def wide(self, tensor: torch.Tensor) -> np.ndarray:
        kind = torch.float64 if tensor.dtype.is_floating_point else torch.int64
        return tensor.detach().to(kind).numpy()

    def dtype(self, tensor: torch.Tensor) -> str:
        return str(tensor.dtype).removeprefix("torch.")

    def gradients(
        self,
        function: Callable[[list[Any]], Sequence[Any]],
        inputs: Sequence[np.ndarray],
        weights: Callable[[int, tuple[int, ...]], np.ndarray],
    ) -> list[np.ndarray]:
        leaves = [torch.tensor(values, requires_grad=True) for values in inputs]
        outputs = function(leaves)
        rows = [(o * torch.tensor(weights(i, tuple(o.shape)))).sum() for i, o in enumerate(outputs)]
        return [g.numpy() for g in torch.autograd.grad(sum(rows), leaves)]


FRAMEWORKS: dict[str, Framework] = {"torch": Torch()}
