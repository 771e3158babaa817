"""Values from the texts of variables. Each raises ValueError with the end of a sentence."""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Sequence
from dataclasses import dataclass

# Horovod reads every word but a positive number as false, "true" included.
SWITCHES = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("0", "false", "no", "off"), False),
}


# As large as the core counts.
_LAST_STEP = 2**64 - 1


@dataclass(frozen=True)
class StepWindow:
    """Every `every`-th of the steps `first` to `end` - 1, counted from 0 as in traces."""

    first: int = 0
    end: int = _LAST_STEP
    every: int = 1


ALL_STEPS = StepWindow()


def _plain(text: str) -> str:
    """The text. Raises ValueError for digits that Python reads and launchers do not write."""
    if "_" in text or not text.isascii():
        raise ValueError
    return text


def integer(text: str) -> int:
    try:
        return int(_plain(text))
    except ValueError:
        raise ValueError("is not a whole number") from None


def number(text: str) -> float:
    try:
        value = float(_plain(text))
    except ValueError:
        raise ValueError("is not a number") from None
    if not math.isfinite(value):
        raise ValueError("is not a number")
    return value


def whole(text: str) -> int:
    value = integer(text)
    if value < 0:
        raise ValueError("is negative")
    return value


def count(text: str) -> int:
    value = whole(text)
    if value == 0:
        raise ValueError("is less than 1")
    return value


def amount(text: str) -> float:
    value = number(text)
    if value < 0:
        raise ValueError("is negative")
    return value


def positive(text: str) -> float:
    value = amount(text)
    if value == 0:
        raise ValueError("is not above 0")
    return value


def share(text: str) -> float:
    value = amount(text)
    if value > 1:
        raise ValueError("is more than 1")
    return value


def switch(text: str) -> bool:
    if text.lower() not in SWITCHES:
        raise ValueError("is neither 0 nor 1 (nor true, false, yes, no, on or off)")
    return SWITCHES[text.lower()]


def one_of(choices: Sequence[str], text: str) -> str:
    if text.lower() not in choices:
        raise ValueError(f"is not one of {', '.join(choices)}")
    return text.lower()


def wholes(text: str) -> tuple[int, ...]:
    """Parse whole numbers, as in `0,2,4`."""
    return tuple(whole(part.strip()) for part in text.split(","))


def step_window(text: str) -> StepWindow:
    """Parse steps, as in `100:120`, `100:`, `:20` or, for every 50th, `::50`."""
    parts = [part.strip() for part in text.split(":")]
    if not 2 <= len(parts) <= 3:
        raise ValueError("is not of the form FIRST:END or FIRST:END:EVERY, as in 100:120 or ::50")
    first, end = (
        whole(part) if part else default
        for part, default in zip(parts, (0, _LAST_STEP), strict=False)
    )
    every = count(parts[2]) if len(parts) == 3 and parts[2] else 1
    if not first < end <= _LAST_STEP:
        raise ValueError("has no steps: it ends where it begins, or before")
    return StepWindow(first, end, every)


def endpoint(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError("is not ADDRESS:PORT")
    return host.removeprefix("[").removesuffix("]"), int(port)


def address(text: str) -> str:
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        raise ValueError("is not a numeric IP address") from None
    if (getattr(found, "ipv4_mapped", None) or found).is_unspecified:
        raise ValueError("means every interface; specify one")
    return str(found)
