"""The groups of gradients that a user asks for. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from hvdtune.errors import UsageError

if TYPE_CHECKING:
    from hvdtune.core.gradients.plan import Gradient

P = TypeVar("P", bound=Hashable)
T = TypeVar("T")
# How many groups of about equal length, or each group's parameters.
Groups = int | Sequence[Sequence[Any]]


def check_groups(groups: Any, members: str) -> None:
    """Raises UsageError unless it is a number of at least 0 or a list of lists of `members`, none
    of them twice."""
    is_number = isinstance(groups, int) and groups >= 0
    is_list = isinstance(groups, list | tuple)
    if not is_number and not (is_list and all(isinstance(g, list | tuple) for g in groups)):
        raise UsageError(
            f"groups (or num_groups) must be a number of at least 0 or a list of lists of "
            f"{members}, not {groups!r:.80}"
        )
    grouped_ones = [] if is_number else list(itertools.chain.from_iterable(groups))
    if len(set(map(id, grouped_ones))) < len(grouped_ones):
        raise UsageError(f"groups contains one of the {members} twice")


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
