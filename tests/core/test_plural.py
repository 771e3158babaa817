"""Counts with their nouns."""

import pytest

from hvdtune.plural import counted


@pytest.mark.parametrize(
    ("count", "noun", "said"),
    [
        (0, "rank", "0 ranks"),
        (1, "rank", "1 rank"),
        (2, "rank", "2 ranks"),
        (1200, "slice", "1,200 slices"),
        (3, "launch", "3 launches"),
        (1, "process", "1 process"),
        (2, "process", "2 processes"),
        (2, "fresh pair", "2 fresh pairs"),
    ],
)
def test_a_noun_agrees_with_its_count(count: int, noun: str, said: str) -> None:
    assert counted(count, noun) == said
