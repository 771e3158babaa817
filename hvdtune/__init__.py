"""Data-parallel training with a tuning workbench. `hvdtune.torch` is the Horovod-like API.

`run`, `launch`, `tune`, `verify` and `load_trace` are loaded when they are first used; for type
checkers they are in `__init__.pyi`.
"""

import importlib
from typing import Any, Final

__version__ = "0.1.0"

# By name: the floors below import this module.
_LAZY: Final = {
    "run": "hvdtune.launcher.function",
    "launch": "hvdtune.workflows.api",
    "load_trace": "hvdtune.workflows.api",
    "tune": "hvdtune.workflows.api",
    "verify": "hvdtune.workflows.api",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'hvdtune' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
