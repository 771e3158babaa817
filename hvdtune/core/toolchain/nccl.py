"""CUDA's driver and NCCL: the wheel's, and whether they can be used here."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any


def wheel_library() -> str:
    """The path of `libnccl.so.2` in the installed package `nvidia-nccl-*`, "" without one."""
    try:
        spec = importlib.util.find_spec("nvidia.nccl")
    except ModuleNotFoundError:  # there is no package `nvidia` at all
        return ""
    for folder in (spec and spec.submodule_search_locations) or ():
        path = Path(folder, "lib", "libnccl.so.2")
        if path.exists():
            return str(path)
    return ""


def libraries_error(cuda_library: str, nccl_library: str) -> str:
    """Why one of both cannot be loaded; "" if they can. See `report` for which they are.

    Initialises nothing, so that a script can still set CUDA_VISIBLE_DEVICES.
    """
    from hvdtune.core import _native

    return _native.gpu_libraries_error(cuda_library, nccl_library or wheel_library())


def report(cuda_library: str, nccl_library: str) -> dict[str, Any]:
    """What there is of both: see `_native.gpu_report`.

    What the process has comes first, then the one that is named, then the wheel's or the system's.
    "unusable" says in a sentence why tensors on a GPU cannot be carried by NCCL, "" if they can.
    """
    from hvdtune.core import _native

    found: dict[str, Any] = _native.gpu_report(cuda_library, nccl_library or wheel_library())
    why = found.get("cuda_error") or found.get("nccl_error") or ""
    if not why and not found["gpus"]:
        why = "this process sees no GPU"
    return found | {"unusable": why}
