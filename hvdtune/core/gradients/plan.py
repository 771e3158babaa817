"""Division of gradients: alone, in the user's groups, or in flat buffers. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

P = TypeVar("P", bound=Hashable)

SMALL_BYTES: Final = 16 << 10  # a gradient below this travels in a flat buffer
FLAT_BUFFER_BYTES: Final = 16 << 20  # at most; the last buffer overlaps with nothing


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
class FlatBuffer(Generic[P]):
    """Small gradients of one dtype, in the order in which they lie in one tensor."""

    members: tuple[Gradient[P], ...]

    @property
    def name(self) -> str:
        return joint_name(self.members)

    @property
    def count(self) -> int:
        return sum(member.count for member in self.members)


def joint_name(members: Sequence[Gradient[Any]]) -> str:
    """`weight`, or `weight+2` for it and two more."""
    first, *more = members
    return f"{first.name}+{len(more)}" if more else first.name


@dataclass(frozen=True)
class Arrangement(Generic[P]):
    """Gradients that are reduced in place, alone or in a group, and those that are packed."""

    groups: tuple[tuple[Gradient[P], ...], ...]
    flat_buffers: tuple[FlatBuffer[P], ...]


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
        if members is None or filled + gradient.nbytes > FLAT_BUFFER_BYTES:
            members, filled = [], 0
            packs.append(members)
        members.append(gradient)
        filling[gradient.dtype] = (members, filled + gradient.nbytes)
    whole += [(members[0],) for members in packs if len(members) == 1]
    return Arrangement(tuple(whole), tuple(FlatBuffer(tuple(m)) for m in packs if len(m) > 1))
