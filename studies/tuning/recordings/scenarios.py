"""Jobs that differ in what limits them, and the settings of their grids."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from hvdtune.core.config.knobs import Setting, Value
from studies.workloads.tensor_lists import Tensor, gpt2_small, thousand_small

KIB: Final = 1 << 10
MIB: Final = 1 << 20
Axes = Mapping[str, Sequence[Value]]

# The default of each knob is among its values; 0 is "off". A knob that a job can hardly feel is no
# axis of its grid: tuners meet it as one without effect.
FUSION: Final = (0, 64 * KIB, 512 * KIB, 4 * MIB, 32 * MIB, 128 * MIB)
CYCLE: Final = (0.0, 0.2, 1.0, 5.0, 20.0, 50.0)
CHUNK: Final = (64 * KIB, 512 * KIB, 4 * MIB)
LARGE_TENSORS: Final[Axes] = {
    "fusion_threshold_bytes": FUSION,
    "cycle_time_ms": CYCLE,
    "chunk_bytes": CHUNK,
}
SMALL_TENSORS: Final[Axes] = {
    "fusion_threshold_bytes": (0, 8 * KIB, 64 * KIB, 512 * KIB, 128 * MIB),
    "cycle_time_ms": CYCLE,
    "chunk_bytes": CHUNK[:2],
    "cache_enabled": (False, True),
}
TWO_HOSTS: Final[Axes] = {
    "fusion_threshold_bytes": (0, 64 * KIB, 512 * KIB, 128 * MIB),
    "cycle_time_ms": (0.0, 1.0, 5.0, 20.0, 50.0),
    "chunk_bytes": CHUNK[:2],
    "hierarchical_allreduce": (False, True),
    "torus_allreduce": (False, True),
}


@dataclass(frozen=True)
class Scenario:
    """A job whose steps are arithmetic and allreduces.

    `tensors` become ready from the last to the first, `together_bytes` at a time, each time after
    its share of `products`, the small matrix products of a step. `rate` limits what each host
    sends, as tc writes it; "" for no network between ranks.
    """

    title: str
    ranks: int
    hosts: int
    tensors: Callable[[], Iterator[Tensor]]
    together_bytes: int
    products: int
    axes: Axes
    rate: str = ""

    def settings(self) -> list[dict[str, Value]]:
        """Every combination of the axes' values, the first axis slowest."""
        names = list(self.axes)
        return [
            dict(zip(names, values, strict=True))
            for values in itertools.product(*self.axes.values())
        ]

    def of(self, setting: Setting) -> dict[str, Value]:
        """The part of a setting that the axes name."""
        return {name: setting[name] for name in self.axes}


def scaled_down(tensors: Iterator[Tensor], by: int) -> Iterator[Tensor]:
    """The same tensors with every side divided."""
    for tensor in tensors:
        yield Tensor(tensor.name, tuple(max(1, side // by) for side in tensor.shape))


def four_huge() -> Iterator[Tensor]:
    """Four tensors of 8 MB: fully connected layers without much else."""
    for index in range(4):
        yield Tensor(f"fc{index}.weight", (1024, 2048))


def two_hundred_small() -> Iterator[Tensor]:
    """200 tensors of 4 KB."""
    for index in range(200):
        yield Tensor(f"layer.{index // 10}.weight{index % 10}", (1024,))


SCENARIOS: Final[dict[str, Scenario]] = {
    "many-small": Scenario(
        "1,000 tensors of 1 KB, 2 ranks on a host",
        ranks=2,
        hosts=1,
        tensors=thousand_small,
        together_bytes=10 * KIB,
        products=40,
        axes=SMALL_TENSORS,
    ),
    "few-huge": Scenario(
        "4 tensors of 8 MB, 2 ranks on a host",
        ranks=2,
        hosts=1,
        tensors=four_huge,
        together_bytes=8 * MIB,
        products=40,
        axes=LARGE_TENSORS,
    ),
    "transformer": Scenario(
        "GPT-2 small with every side divided by 6: 148 tensors, 14 MB, 2 ranks on a host",
        ranks=2,
        hosts=1,
        tensors=lambda: scaled_down(gpt2_small(), 6),
        together_bytes=256 * KIB,
        products=80,
        axes=LARGE_TENSORS,
    ),
    "two-hosts": Scenario(
        "GPT-2 small with every side divided by 20: 148 tensors, 1.3 MB, 2 hosts with 2 ranks "
        "each, 1 Gbit/s between them",
        ranks=4,
        hosts=2,
        tensors=lambda: scaled_down(gpt2_small(), 20),
        together_bytes=32 * KIB,
        products=20,
        axes=TWO_HOSTS,
        rate="1gbit",
    ),
    "small-two-hosts": Scenario(
        "200 tensors of 4 KB, 2 hosts with 2 ranks each, 1 Gbit/s between them",
        ranks=4,
        hosts=2,
        tensors=two_hundred_small,
        together_bytes=32 * KIB,
        products=20,
        axes=TWO_HOSTS,
        rate="1gbit",
    ),
}
