"""The operations' own library, compiled for the TensorFlow that is installed.

TensorFlow's interface for operations in C++ is bound to its version. hvdtune's wheels bring the
library for PyPI's versions; for another it is made on first use, in about 20 seconds, and kept for
this user; `hvdtune build tensorflow` makes it ahead. Where that is not possible, operations are
carried out by Python: correct, but one after the other.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import os
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import tensorflow as tf

from hvdtune.core.rank import runtime
from hvdtune.core.rank.process import PROCESS
from hvdtune.core.toolchain import op_library
from hvdtune.core.toolchain.compiler import find_compiler, run
from hvdtune.core.toolchain.frameworks import tensorflow_folder
from hvdtune.errors import HvdtuneError
from hvdtune.own_files import make_folders, require_trusted

_TRY: Final = "import sys, tensorflow; tensorflow.load_op_library(sys.argv[1])"
_API_VERSION: Final = 3

_lock = threading.Lock()  # guards what follows
_library: _Library | None = None
_is_missing = False


class _Library:
    """The loaded library: `ops` has a function for each operation."""

    def __init__(self, path: Path) -> None:
        self.ops: Any = tf.load_op_library(str(path))
        self._bind = ctypes.CDLL(str(path)).hvdtune_tensorflow_bind
        self._bind.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        self._bind.restype = ctypes.c_uint

    def bind(self) -> None:
        """Leads the operations to the job that this process is part of now, if any."""
        from hvdtune.core import _native

        job = runtime.native().framework_job() if runtime.is_initialized() else None
        version = self._bind(_native.framework_api(), job)
        if version != _API_VERSION:
            raise HvdtuneError(
                f"the library for TensorFlow has version {version}, not {_API_VERSION}: "
                "run `hvdtune build tensorflow`"
            )


def operations() -> Any:
    """A function for each operation, or None where there is no library; warns once then."""
    global _library, _is_missing
    if _library is not None:
        return _library.ops
    with _lock:
        if _library is None and not _is_missing:
            try:
                found = _load()
                found.bind()
                _library = found
            except (HvdtuneError, tf.errors.NotFoundError) as error:
                _is_missing = True
                warnings.warn(
                    f"{error}\nUntil then, hvdtune's operations in TensorFlow are slow: they run "
                    "one after the other. `hvdtune build tensorflow` tries again.",
                    RuntimeWarning,
                    stacklevel=3,
                )
    return None if _library is None else _library.ops


def _load() -> _Library:
    brought = None if is_made() else packaged()
    if brought is not None:
        # A TensorFlow that someone else has built may lack a symbol: it gets a library of its own.
        with suppress(tf.errors.NotFoundError):
            return _Library(brought)
    return _Library(build())


PROCESS.has_gpu_tensors |= tf.test.is_built_with_gpu_support()


def _follow_job() -> None:
    if _library is not None:
        _library.bind()
    if runtime.is_initialized():
        runtime.on_shutdown(_follow_job)


runtime.on_init(_follow_job)
if runtime.is_initialized():
    _follow_job()


def version() -> str:
    """The version of the TensorFlow that is installed."""
    return str(tf.__version__)


def path() -> Path:
    """Return where the library for this TensorFlow and this hvdtune belongs."""
    known = hashlib.sha256()
    for source in op_library.sources():
        known.update(source.read_bytes())
    known.update(" ".join(_flags()).encode())
    name = f"{version()}-{known.hexdigest()[:16]}.so"
    return tensorflow_folder() / name


def build() -> Path:
    """Compiles the library unless it is there.

    Raises:
        HvdtuneError: there is no compiler, or it fails; or others can write where it is kept.
    """
    target = path()
    try:
        make_folders(target.parent)
        require_trusted(target.parent)
        if not _is_whole(target):
            with _alone(target.with_suffix(".lock")):
                if not _is_whole(target):
                    _compile(target)
        require_trusted(target)
        return target
    except OSError as error:
        raise HvdtuneError(f"the library for TensorFlow cannot be stored: {error}") from None


def is_made() -> bool:
    """Return whether this user has made the library, and it is as it was made."""
    return _is_whole(path())


def packaged() -> Path | None:
    """The library that hvdtune's wheel brings for exactly this TensorFlow, if it does."""
    return op_library.packaged(version(), Path(tf.sysconfig.get_include()))


def _is_whole(target: Path) -> bool:
    """Return whether the file is complete: loading a truncated one kills the process."""
    try:
        return _checksum_file(target).read_bytes() == _checksum(target)
    except OSError:
        return False


def _checksum_file(target: Path) -> Path:
    return target.with_suffix(".sha256")


def _checksum(file: Path) -> bytes:
    return hashlib.sha256(file.read_bytes()).hexdigest().encode()


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """While the ranks of a host find the library missing together, one of them makes it."""
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # which ends with its holder
        yield


def _compile(target: Path) -> None:
    try:
        compiler = find_compiler()
    except HvdtuneError as error:
        raise HvdtuneError(f"the library for TensorFlow cannot be built: {error}") from None
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        made = Path(folder) / target.name
        sources, linked = op_library.sources(), tf.sysconfig.get_link_flags()
        command = op_library.compilation(compiler, sources, _flags(), linked, made)
        run(command, "the library for TensorFlow was not built, because the compiler fails")
        _try(made)
        made_sum = _checksum_file(made)
        made_sum.write_bytes(_checksum(made))
        os.replace(made_sum, _checksum_file(target))
        made.chmod(0o700)  # whatever the umask: others must not write there
        os.replace(made, target)


def loads(file: Path) -> bool:
    """Return whether this TensorFlow can load the library; a process of its own tries."""
    try:
        _try(file)
    except HvdtuneError:
        return False
    return True


def _try(file: Path) -> None:
    from hvdtune.core.config.environment import own_environ

    quiet = {**own_environ(), "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-c", _TRY, str(file)]
    run(command, "the library for TensorFlow was built, but does not load", quiet)


def _flags() -> list[str]:
    return list(tf.sysconfig.get_compile_flags())
