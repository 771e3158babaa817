"""The library of TensorFlow's operations as files: its sources, how they are compiled, which of
the compiled ones that a wheel of hvdtune brings belongs to a TensorFlow."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from hvdtune.errors import HvdtuneError

_PACKAGE: Final = Path(__file__).parents[2] / "tensorflow" / "op_library"
_CHECKOUT: Final = Path(__file__).parents[3] / "csrc"
# What the library shares with TensorFlow in memory is declared in these and what they include.
_HEADERS: Final = (
    "tensorflow/core/framework/device_base.h",
    "tensorflow/core/framework/op.h",
    "tensorflow/core/framework/op_kernel.h",
    "tensorflow/core/framework/shape_inference.h",
    "tensorflow/core/framework/tensor.h",
    "tensorflow/core/framework/tensor_shape.h",
    "absl/base/options.h",
    "absl/container/inlined_vector.h",
    "absl/status/status.h",
    "absl/strings/cord.h",
    "google/protobuf/port_def.inc",
    "xla/stream_executor/stream.h",
)


def sources() -> list[Path]:
    """All files that the library is compiled from.

    Raises:
        HvdtuneError: they are missing.
    """
    if found := sources_of(_CHECKOUT):
        return found
    if (_PACKAGE / "kernels.cc").is_file():
        return sorted([*_PACKAGE.glob("*.cc"), *_PACKAGE.glob("*.h")])
    raise HvdtuneError(
        "The source of the library for TensorFlow is missing. Install hvdtune again."
    )


def sources_of(csrc: Path) -> list[Path]:
    """Those of a checkout or an sdist, whose C++ lies in `csrc`; none where there are none."""
    found = [*csrc.glob("tensorflow/*.cc"), *csrc.glob("tensorflow/*.h")]
    return sorted([*found, csrc / "runtime" / "framework_api.h"]) if found else []


def compilation(
    compiler: Sequence[str],
    files: Sequence[Path],
    flags: Sequence[str],
    linked: Sequence[str],
    target: Path,
) -> list[str]:
    """The command that makes the library.

    Args:
        files: the sources.
        flags: what TensorFlow says its headers need.
        linked: what leads the linker to TensorFlow.
    """
    include = dict.fromkeys(f"-I{source.parent}" for source in files)
    units = [str(source) for source in files if source.suffix == ".cc"]
    command = [*compiler, "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-pthread"]
    # TensorFlow's own headers warn.
    return [*command, *include, "-w", *flags, *units, *linked, "-o", str(target)]


def packaged_name(versions: Sequence[str], include: Path) -> str:
    """The name that a wheel has for the library of some releases of TensorFlow.

    Other distributions than PyPI's build a version in other ways, with an Abseil of the system for
    instance, which their headers tell.

    Args:
        versions: those that it is the same for.
        include: the folder of the headers of one of them.
    """
    known = hashlib.sha256()
    for part in _contents(include):
        known.update(part)
    return f"{'_'.join(versions)}-{known.hexdigest()[:16]}.so"


def _contents(include: Path) -> Iterator[bytes]:
    for header in _HEADERS:
        path = include / header
        yield f"{header} {path.is_file()}\n".encode()
        if path.is_file():
            yield path.read_bytes()


def packaged(version: str, include: Path) -> Path | None:
    """The library for exactly this TensorFlow, if the wheel of hvdtune has brought it."""
    name = packaged_name([version], include)
    end = name.removeprefix(version)
    return next((path for path in packaged_for(version) if path.name.endswith(end)), None)


def packaged_for(version: str | None) -> list[Path]:
    """The libraries for a version of TensorFlow, of which no headers have been looked at."""
    found = sorted(_PACKAGE.glob("*-*.so"))
    return [path for path in found if version in _versions_of(path)]


def packaged_versions() -> list[str]:
    """The versions of TensorFlow for which the wheel of hvdtune has brought a library."""
    return [each for path in sorted(_PACKAGE.glob("*-*.so")) for each in _versions_of(path)]


def _versions_of(path: Path) -> list[str]:
    return path.name.partition("-")[0].split("_")
