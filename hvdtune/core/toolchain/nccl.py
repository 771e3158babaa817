"""The NCCL that frameworks bring: that of NVIDIA's wheel."""

from __future__ import annotations

import importlib.util
from pathlib import Path


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
