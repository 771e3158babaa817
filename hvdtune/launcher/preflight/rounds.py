"""The order of the measurements, in which none disturbs another. Pure."""

from __future__ import annotations


def rounds(size: int) -> list[list[tuple[int, int]]]:
    """Return every ordered pair of 0..size-1 once, in rounds with each number in at most one pair.

    It is the circle method of round-robin tournaments, with each round in both directions.
    """
    numbers: list[int | None] = [*range(size), *([None] if size % 2 else [])]
    found = []
    for _ in range(len(numbers) - 1):
        half = len(numbers) // 2
        meet = zip(numbers[:half], reversed(numbers[half:]), strict=True)
        pairs = [(a, b) for a, b in meet if a is not None and b is not None]
        found += [pairs, [(b, a) for a, b in pairs]]
        numbers = [numbers[0], numbers[-1], *numbers[1:-1]]
    return found
