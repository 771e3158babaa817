"""Counts with their nouns and sizes with their units."""

import pytest

from hvdtune.plural import counted, sized


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
        (9.0, "tensor", "9 tensors"),
        (1.02, "cycle", "1 cycle"),
        (2.5, "tensor", "2.5 tensors"),
    ],
)
def test_a_noun_agrees_with_its_count(count: float, noun: str, said: str) -> None:
    assert counted(count, noun) == said


@pytest.mark.parametrize(
    ("size_bytes", "said"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (1023, "1,023 bytes"),
        (16384, "16 KiB"),
        (133120.0, "130 KiB"),
        (2**20 - 1024, "1023 KiB"),
        (1.5 * 2**20, "1.5 MiB"),
        (1.506 * 2**20, "1.51 MiB"),
        (1_000 * 2**20, "1000 MiB"),
        (1_023 * 2**10, "1023 KiB"),
        (2**30, "1 GiB"),
    ],
)
def test_a_size_has_the_unit_that_fits_it(size_bytes: float, said: str) -> None:
    assert sized(size_bytes) == said
