"""Data-parallel training with a tuning workbench. `hvdtune.torch` is the Horovod-like API.

`run`, `launch`, `tune`, `verify` and `load_trace` are loaded when they are first used; for type
checkers they are in `__init__.pyi`.
"""

import importlib
from typing import Any, Final

__version__ = "0.1.0"
__all__ = ["launch", "load_trace", "run", "tune", "verify"]

# By name: the layers below import this module.
_LAZY: Final = {
    "run": "hvdtune.launcher.function",
    "launch": "hvdtune.workflows.api",
    "load_trace": "hvdtune.workflows.api",
    "tune": "hvdtune.workflows.api",
    "verify": "hvdtune.workflows.api",
}

# Those that are attributes of this one once they are imported.
_PUBLIC_MODULES: Final = {"errors", "keras", "tensorflow", "timeline", "torch"}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'hvdtune' has no attribute '{name}'")


def __dir__() -> list[str]:
    own = {name for name in globals() if name.startswith("__")}
    return sorted({*__all__, *own, *(_PUBLIC_MODULES & globals().keys())})
