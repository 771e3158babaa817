"""Data-parallel training with a tuning workbench. `hvdtune.torch` is the Horovod-like API."""

import importlib
from typing import Any

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name == "run":  # by name: the floors below import this module
        return importlib.import_module("hvdtune.launcher.function").run
    raise AttributeError(f"module 'hvdtune' has no attribute '{name}'")
