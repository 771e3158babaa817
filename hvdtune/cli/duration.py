"""Times as people write them."""

from __future__ import annotations

import re
from typing import Final

_PARTS: Final = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s?)?")


def parse_duration(text: str) -> float:
    """Seconds in `90`, `90s`, `8m`, `1h30m`. Raises ValueError unless they are more than none."""
    match = _PARTS.fullmatch(text.strip().lower())
    hours, minutes, seconds = (float(part or 0) for part in match.groups()) if match else (0, 0, 0)
    total = hours * 3600 + minutes * 60 + seconds
    if total <= 0:
        raise ValueError(f"'{text}' is not a time such as 90, 90s, 8m or 1h30m")
    return total


def format_duration(seconds: float) -> str:
    """`8m05s`, `1h02m` or `45s`."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02}m"
