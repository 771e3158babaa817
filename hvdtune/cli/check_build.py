"""`--check-build`: the available parts, in horovodrun's form."""

from __future__ import annotations

import importlib
from typing import Final

import hvdtune
from hvdtune.core.mpi.mpi_library import built_plugins
from hvdtune.horovod.vocabulary import ABSENT_LIBRARIES

_FRAMEWORKS: Final = (
    ("TensorFlow", "hvdtune.tensorflow"),
    ("PyTorch", "hvdtune.torch"),
    ("MXNet", "hvdtune.mxnet"),
)


def render() -> str:
    """Return Horovod's page; its "Gloo" is hvdtune's own controller and operations."""
    mpi = bool(built_plugins())
    frameworks = [(title, _imports(module)) for title, module in _FRAMEWORKS]
    absent = [(library, False) for library in ABSENT_LIBRARIES]
    operations = [*absent, ("MPI", mpi), ("Gloo", True)]
    return "\n".join(
        [
            f"hvdtune v{hvdtune.__version__}:",
            *_section("Available Frameworks", frameworks),
            *_section("Available Controllers", [("MPI", mpi), ("Gloo", True)]),
            *_section("Available Tensor Operations", operations),
            "",
            "Gloo: hvdtune's own controller and operations.",
        ]
    )


def _imports(module: str) -> bool:
    try:
        importlib.import_module(module)
    except (ImportError, OSError):  # a framework without its shared libraries
        return False
    return True


def _section(title: str, rows: list[tuple[str, bool]]) -> list[str]:
    return ["", f"{title}:", *(f"    [{'X' if there else ' '}] {name}" for name, there in rows)]
