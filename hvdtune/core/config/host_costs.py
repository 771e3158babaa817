"""The costs of moving bytes on this host, measured once and kept for later jobs.

The core chooses the data path within a host by these numbers (`csrc/transport/host_costs.h`);
results never depend on them. The file belongs to one machine under one kernel.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from hvdtune.own_files import make_folders, make_own_folder, read_own, replacement, require_own

# As in the core: in nanoseconds, except the first.
NAMES: Final = (
    "cache_bytes", "copy_ns", "far_copy_ns", "reduce_ns", "peer_call_ns", "peer_copy_ns",
    "far_peer_copy_ns", "meet_ns", "wake_ns", "spin_ns",
)  # fmt: skip
_VERSION: Final = 3  # of the measurement
_MOST: Final = 1e15

Costs = dict[str, float]


def parse(text: str) -> Costs | None:
    """Parse "measure" (returns None), a JSON object, or the path of a file with one.

    Raises ValueError with the end of a sentence.
    """
    if text == "measure":
        return None
    if not text.startswith("{"):
        try:
            text = Path(text).read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or "not a text file"
            raise ValueError(
                f'must be "measure", JSON or the path of a readable file ({why})'
            ) from None
    return _costs_of(text)


def load(cache: Path) -> Costs | None:
    """Return the costs of this host from the cache folder, None if they must be measured."""
    with suppress(OSError, ValueError):  # measured again, whatever is wrong with the file
        path = path_in(cache)
        require_own(path.parent)
        return _costs_of(read_own(path).decode())
    return None


def store(cache: Path, costs: Mapping[str, float]) -> None:
    """Keep the costs for later jobs. Raises OSError if that fails."""
    path = path_in(cache)
    make_folders(cache)
    make_own_folder(path.parent)
    with replacement(path, 0o600) as part:
        part.write_text(json.dumps({name: round(costs[name], 3) for name in NAMES}, indent=2))


def path_in(cache: Path) -> Path:
    """Return the file in the cache folder for this machine and kernel."""
    machine = f"{_VERSION} {_processor()} {os.cpu_count()} {platform.release()}"
    return cache / "host-costs" / f"{hashlib.sha256(machine.encode()).hexdigest()[:16]}.json"


def render(costs: Mapping[str, float]) -> str:
    """Return the costs in one line of text."""
    gb_s = {name: 1024 / costs[name] for name in NAMES if "copy" in name}
    return (
        f"copies {gb_s['copy_ns']:.1f} GB/s ({gb_s['far_copy_ns']:.1f} beyond the cache); copies "
        f"between processes {gb_s['peer_copy_ns']:.1f} GB/s ({gb_s['far_peer_copy_ns']:.1f} beyond "
        f"the cache) plus {costs['peer_call_ns'] / 1000:.1f} us per call; wake-up "
        f"{costs['wake_ns'] / 1000:.0f} us"
    )


def _costs_of(text: str) -> Costs:
    try:
        given = json.loads(text)
    except ValueError:
        raise ValueError("is not JSON") from None
    if not isinstance(given, dict) or set(given) != set(NAMES):
        raise ValueError(f"must be a JSON object with exactly these numbers: {', '.join(NAMES)}")
    for name, value in given.items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not math.isfinite(value) or not 0 < value < _MOST:
            raise ValueError(f"has {name}={value!r}, which is not a positive number")
    return {name: float(given[name]) for name in NAMES}


def _processor() -> str:
    with suppress(OSError), open("/proc/cpuinfo") as file:
        for line in file:
            name, _, value = line.partition(":")
            if name.strip() in ("model name", "CPU part"):
                return value.strip()
    return platform.machine()
