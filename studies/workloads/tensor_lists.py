"""The gradients of well-known models as names and shapes, computed from their architecture.

Reducing them needs neither the models' libraries nor their data. Lists are in the order in which
the models register their parameters, so that a backward pass produces them from the end; shapes
are PyTorch's: [out, in, height, width] for a convolution, [out, in] for a linear layer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Tensor:
    """A parameter: `module.weight`, its shape, and a NumPy dtype name or "bfloat16"."""

    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"

    @property
    def count(self) -> int:
        return math.prod(self.shape)

    @property
    def module(self) -> str:
        return self.name.rpartition(".")[0]


def resnet50() -> Iterator[Tensor]:
    """ResNet-50 for ImageNet (He et al., arXiv:1512.03385, stride in the 3x3): 25,557,032."""
    yield from _convolution("conv1", "bn1", 64, 3, 7)
    inputs = 64
    for stage, (width, blocks) in enumerate([(64, 3), (128, 4), (256, 6), (512, 3)], start=1):
        for block in range(blocks):
            at = f"layer{stage}.{block}"
            yield from _convolution(f"{at}.conv1", f"{at}.bn1", width, inputs, 1)
            yield from _convolution(f"{at}.conv2", f"{at}.bn2", width, width, 3)
            yield from _convolution(f"{at}.conv3", f"{at}.bn3", 4 * width, width, 1)
            if block == 0:
                yield from _convolution(
                    f"{at}.downsample.0", f"{at}.downsample.1", 4 * width, inputs, 1
                )
            inputs = 4 * width
    yield from _linear("fc", 1000, 2048)


def mobilenet_v2() -> Iterator[Tensor]:
    """MobileNetV2 at width 1.0 (Sandler et al., arXiv:1801.04381): 3,504,872, mostly tiny."""
    yield from _convolution("features.0.0", "features.0.1", 32, 3, 3)
    inputs, index = 32, 1
    rows = [(1, 16, 1), (6, 24, 2), (6, 32, 3), (6, 64, 4), (6, 96, 3), (6, 160, 3), (6, 320, 1)]
    for expansion, outputs, repeats in rows:
        for _ in range(repeats):
            at, hidden = f"features.{index}.conv", expansion * inputs
            if expansion > 1:
                yield from _convolution(f"{at}.0.0", f"{at}.0.1", hidden, inputs, 1)
            yield from _convolution(f"{at}.1.0", f"{at}.1.1", hidden, 1, 3)  # depthwise
            yield from _convolution(f"{at}.2", f"{at}.3", outputs, hidden, 1)
            inputs, index = outputs, index + 1
    yield from _convolution("features.18.0", "features.18.1", 1280, 320, 1)
    yield from _linear("classifier.1", 1000, 1280)


def vgg16() -> Iterator[Tensor]:
    """VGG-16 (Simonyan and Zisserman, arXiv:1409.1556): 138,357,544, most of them in one tensor."""
    inputs = 3
    widths = [64, 64, 128, 128, 256, 256, 256, 512, 512, 512, 512, 512, 512]
    for index, outputs in enumerate(widths):
        yield Tensor(f"features.{index}.weight", (outputs, inputs, 3, 3))
        yield Tensor(f"features.{index}.bias", (outputs,))
        inputs = outputs
    yield from _linear("classifier.0", 4096, 512 * 7 * 7)
    yield from _linear("classifier.3", 4096, 4096)
    yield from _linear("classifier.6", 1000, 4096)


def bert_base() -> Iterator[Tensor]:
    """BERT-base, uncased, with its pooler (Devlin et al., arXiv:1810.04805): 109,482,240."""
    width = 768
    for name, rows in [("word", 30522), ("position", 512), ("token_type", 2)]:
        yield Tensor(f"embeddings.{name}_embeddings.weight", (rows, width))
    yield from _norm("embeddings.LayerNorm", width)
    for layer in range(12):
        at = f"encoder.layer.{layer}"
        for name in ("query", "key", "value"):
            yield from _linear(f"{at}.attention.self.{name}", width, width)
        yield from _linear(f"{at}.attention.output.dense", width, width)
        yield from _norm(f"{at}.attention.output.LayerNorm", width)
        yield from _linear(f"{at}.intermediate.dense", 4 * width, width)
        yield from _linear(f"{at}.output.dense", width, 4 * width)
        yield from _norm(f"{at}.output.LayerNorm", width)
    yield from _linear("pooler.dense", width, width)


def gpt2_small() -> Iterator[Tensor]:
    """GPT-2 small, head tied to the embedding (Radford et al., 2019): 124,439,808."""
    width = 768
    yield Tensor("wte.weight", (50257, width))
    yield Tensor("wpe.weight", (1024, width))
    for layer in range(12):
        at = f"h.{layer}"
        yield from _norm(f"{at}.ln_1", width)
        # GPT-2 keeps its matrices as [in, out].
        yield from _linear(f"{at}.attn.c_attn", width, 3 * width, bias=3 * width)
        yield from _linear(f"{at}.attn.c_proj", width, width)
        yield from _norm(f"{at}.ln_2", width)
        yield from _linear(f"{at}.mlp.c_fc", width, 4 * width, bias=4 * width)
        yield from _linear(f"{at}.mlp.c_proj", 4 * width, width, bias=width)
    yield from _norm("ln_f", width)


def wide_embedding() -> Iterator[Tensor]:
    """A recommender: one dense embedding of 1,000,000 x 64 (256 MB) before a small network."""
    yield Tensor("embedding.weight", (1_000_000, 64))
    inputs = 26 * 64 + 13
    for index, outputs in enumerate([512, 256, 1]):
        yield from _linear(f"top.{index}", outputs, inputs)
        inputs = outputs


def thousand_small() -> Iterator[Tensor]:
    """1,000 tensors of 1 KB: nothing but the cost per tensor."""
    for index in range(1000):
        yield Tensor(f"layer.{index // 10}.weight{index % 10}", (256,))


def _convolution(name: str, norm: str, outputs: int, inputs: int, size: int) -> Iterator[Tensor]:
    yield Tensor(f"{name}.weight", (outputs, inputs, size, size))
    yield from _norm(norm, outputs)


def _norm(name: str, width: int) -> Iterator[Tensor]:
    yield Tensor(f"{name}.weight", (width,))
    yield Tensor(f"{name}.bias", (width,))


def _linear(name: str, outputs: int, inputs: int, bias: int | None = None) -> Iterator[Tensor]:
    yield Tensor(f"{name}.weight", (outputs, inputs))
    yield Tensor(f"{name}.bias", (outputs if bias is None else bias,))


WORKLOADS: Final[dict[str, Callable[[], Iterator[Tensor]]]] = {
    "thousand_small": thousand_small,
    "resnet50": resnet50,
    "bert_base": bert_base,
    "mobilenet_v2": mobilenet_v2,
    "vgg16": vgg16,
    "gpt2_small": gpt2_small,
    "wide_embedding": wide_embedding,
}


def tensors(workload: str) -> list[Tensor]:
    """The list of one of WORKLOADS."""
    return list(WORKLOADS[workload]())
