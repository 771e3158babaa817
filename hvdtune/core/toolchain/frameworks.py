"""Which versions of the frameworks are installed, without importing them."""

from __future__ import annotations

import importlib.metadata
from contextlib import suppress
from pathlib import Path
from typing import Final

_WHEELS: Final = {
    "tensorflow": ("tensorflow", "tensorflow-cpu", "tensorflow-intel", "tf-nightly"),
}


def installed_version(module: str) -> str | None:
    """The version of the wheel that brings this module; None where none is known."""
    for name in _WHEELS.get(module, (module,)):
        with suppress(importlib.metadata.PackageNotFoundError):
            return importlib.metadata.version(name)
    return None


def tensorflow_folder() -> Path:
    """Where this user keeps hvdtune's operations for TensorFlow, in files of `<version>-*.so`."""
    from hvdtune.core.config.environment import cache_folder

    return cache_folder() / "tensorflow"
