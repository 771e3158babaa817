"""What the contract suite needs to know of a framework whose binding it tests.

To bind another one: write a class, add it to FRAMEWORKS.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch

import hvdtune.torch
from tests.parallel import ranks


class Framework(Protocol):
    """Its tensors, and `hvd`, its hvdtune module. One object per framework, without state.

    dtypes are NumPy names or "bfloat16". `in_place`: what has functions that overwrite tensors.
    """

    name: str
    hvd: Any
    in_place: tuple[str, ...]

    def together(self, function: Callable[[], Any]) -> Any:
        """Return what the function returns when the framework runs it as one graph, if it can."""

    def tensor(self, values: np.ndarray, dtype: str) -> Any:
        """A tensor of this dtype, rounded where it must be."""

    def strided(self, tensor: Any) -> Any:
        """The same values in another order in memory, where the framework knows such tensors."""

    def wide(self, tensor: Any) -> np.ndarray:
        """Return the tensor's values in float64 or int64."""

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
    in_place = ("allreduce", "broadcast")

    def together(self, function: Callable[[], Any]) -> Any:
        return function()

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


class TorchOnGpu(Torch):
    """In a GPU's memory."""

    name = "torch on a GPU"

    def tensor(self, values: np.ndarray, dtype: str) -> torch.Tensor:
        return super().tensor(values, dtype).cuda()

    def wide(self, tensor: torch.Tensor) -> np.ndarray:
        return super().wide(tensor.cpu())


class TensorFlow:
    """Imported where it is used: in ranks."""

    name = "tensorflow"
    in_place: tuple[str, ...] = ()  # variables have functions of their own

    @cached_property
    def tf(self) -> Any:
        import tensorflow

        return tensorflow

    @cached_property
    def hvd(self) -> Any:
        import hvdtune.tensorflow

        return hvdtune.tensorflow

    def together(self, function: Callable[[], Any]) -> Any:
        return function()

    def tensor(self, values: np.ndarray, dtype: str) -> Any:
        return self.tf.constant(values.astype(self.tf.as_dtype(dtype).as_numpy_dtype))

    def strided(self, tensor: Any) -> Any:
        return tensor

    def wide(self, tensor: Any) -> np.ndarray:
        kind = np.float64 if tensor.dtype.is_floating else np.int64
        return tensor.numpy().astype(kind)

    def dtype(self, tensor: Any) -> str:
        return tensor.dtype.name

    def gradients(
        self,
        function: Callable[[list[Any]], Sequence[Any]],
        inputs: Sequence[np.ndarray],
        weights: Callable[[int, tuple[int, ...]], np.ndarray],
    ) -> list[np.ndarray]:
        leaves = [self.tf.constant(values) for values in inputs]
        with self.tf.GradientTape() as tape:
            tape.watch(leaves)
            outputs = function(leaves)
            total = sum(self._weighted(o, weights, i) for i, o in enumerate(outputs))
        return [g.numpy() for g in tape.gradient(total, leaves)]

    def _weighted(self, output: Any, weights: Callable[..., np.ndarray], index: int) -> Any:
        tf = self.tf
        # In a graph only a run knows how many rows come from other ranks.
        given = tf.numpy_function(
            lambda n: weights(index, tuple(n)), [tf.shape(output)], tf.float64
        )
        return tf.reduce_sum(output * tf.reshape(given, tf.shape(output)))


class InGraph(TensorFlow):
    """Inside tf.function, where operations overlap."""

    name = "tf.function"

    def together(self, function: Callable[[], Any]) -> Any:
        return self.tf.function(function, autograph=False)()

    def gradients(
        self,
        function: Callable[[list[Any]], Sequence[Any]],
        inputs: Sequence[np.ndarray],
        weights: Callable[[int, tuple[int, ...]], np.ndarray],
    ) -> list[np.ndarray]:
        tf = self.tf

        @tf.function(autograph=False)
        def traced(*leaves: Any) -> list[Any]:
            with tf.GradientTape() as tape:
                tape.watch(leaves)
                outputs = function(list(leaves))
                total = sum(self._weighted(o, weights, i) for i, o in enumerate(outputs))
            return tape.gradient(total, leaves)

        return [g.numpy() for g in traced(*(tf.constant(values) for values in inputs))]


FRAMEWORKS: dict[str, Framework] = {"torch": Torch(), "tensorflow": TensorFlow()}
WITH_GRAPHS: dict[str, Framework] = {**FRAMEWORKS, "tf.function": InGraph()}
BY_NAME: dict[str, Framework] = {**WITH_GRAPHS, "torch on a GPU": TorchOnGpu()}


def run(body: Callable[..., Any], size: int, framework: str, **options: Any) -> list[Any]:
    """As tests.parallel.ranks.run: what `body(framework)` returned on each rank."""
    return ranks.run(body, size, framework, tensorflow="torch" not in framework, **options)
