"""What every Python process of a measured command loads first: it clocks the optimizer's steps and
gives DistributedDataParallel the arguments that setting.json beside this file names.

The interpreter imports it because its folder leads PYTHONPATH. It imports only the standard
library, since the command's Python need not be hvdtune's, and torch not at all: it waits until the
command does.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import json
import os
import struct
import sys
import time
import weakref
from collections.abc import Iterator
from types import ModuleType
from typing import Any

_FOLDER = os.path.dirname(os.path.abspath(__file__))
_MIB = 1 << 20


class StepStamper:
    """Appends the time of every step's end, 8 bytes, to FOLDER/PID.steps.

    Only the first optimizer that steps counts: of several, it steps once per iteration.
    A wrapper's step contains that of what it wraps, so the outermost counts.
    """

    def __init__(self) -> None:
        self._optimizer: weakref.ref[Any] | None = None
        self._depth = 0
        self._fd = -1

    def before(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if self._optimizer is None:
            self._optimizer = weakref.ref(optimizer)
        if self._optimizer() is optimizer:
            self._depth += 1

    def after(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if self._optimizer is not None and self._optimizer() is optimizer:
            self._depth -= 1
            if self._depth == 0:
                self._write(struct.pack("<q", time.monotonic_ns()))

    def _write(self, stamp: bytes) -> None:
        # A full disk must not stop the training: then there are no more times.
        with contextlib.suppress(OSError):
            if self._fd < 0:
                path = os.path.join(_FOLDER, f"{os.getpid()}.steps")
                self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC)
            os.write(self._fd, stamp)


def clock_steps(module: Any) -> None:
    """`module` is torch.optim.optimizer."""
    clock = StepStamper()
    module.register_optimizer_step_pre_hook(clock.before)
    module.register_optimizer_step_post_hook(clock.after)


def tune_ddp(module: Any) -> None:
    """`module` is torch.nn.parallel.distributed."""
    ddp = module.DistributedDataParallel
    construct = ddp.__init__
    signature = inspect.signature(construct)
    with open(os.path.join(_FOLDER, "setting.json"), encoding="utf-8") as file:
        setting = json.load(file)

    @functools.wraps(construct)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        arguments = signature.bind(self, *args, **kwargs).arguments
        if "gradient_as_bucket_view" in setting:
            arguments["gradient_as_bucket_view"] = setting["gradient_as_bucket_view"]
        with _buckets(module, arguments, setting):
            construct(**arguments)
        _tell(self, module)

    ddp.__init__ = __init__


@contextlib.contextmanager
def _buckets(module: Any, arguments: dict[str, Any], setting: dict[str, Any]) -> Iterator[None]:
    """DDP has an argument for all buckets, a module's constant for the first, and heeds the
    constant only where the argument is not given."""
    if "bucket_cap_mb" not in setting:
        yield
        return
    cap_mb, first_bytes = setting["bucket_cap_mb"], int(setting["first_bucket_mb"] * _MIB)
    arguments.pop("bucket_cap_mb_list", None)
    with contextlib.ExitStack() as stack:
        stack.enter_context(_changed(module.dist, "_DEFAULT_FIRST_BUCKET_BYTES", first_bytes))
        if hasattr(module, "_DEFAULT_BUCKET_CAP_MB"):
            arguments["bucket_cap_mb"] = None
            stack.enter_context(_changed(module, "_DEFAULT_BUCKET_CAP_MB", cap_mb))
        else:
            arguments["bucket_cap_mb"] = cap_mb
            always = property(lambda self: True, lambda self, value: None)
            ddp = module.DistributedDataParallel
            stack.enter_context(_changed(ddp, "bucket_bytes_cap_default", always))
        yield


@contextlib.contextmanager
def _changed(owner: Any, name: str, value: Any) -> Iterator[None]:
    missing = object()
    before = getattr(owner, name, missing)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if before is missing:
            delattr(owner, name)
        else:
            setattr(owner, name, before)


def _tell(ddp: Any, module: Any) -> None:
    first = ddp.bucket_bytes_cap
    if hasattr(ddp, "_bucket_config"):
        first = ddp._bucket_config.first_bucket_bytes_cap
    elif getattr(ddp, "bucket_bytes_cap_default", False):
        first = module.dist._DEFAULT_FIRST_BUCKET_BYTES
    known = {
        "bucket_cap_mb": ddp.bucket_bytes_cap / _MIB,
        "first_bucket_mb": first / _MIB,
        "gradient_as_bucket_view": bool(ddp.gradient_as_bucket_view),
    }
    path = os.path.join(_FOLDER, f"{os.getpid()}.ddp")
    with contextlib.suppress(OSError), open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(known) + "\n")


_PATCHES = {"torch.optim.optimizer": clock_steps, "torch.nn.parallel.distributed": tune_ddp}


class Patcher(importlib.abc.MetaPathFinder):
    """Patches a module when it has been imported, and takes no other part in importing."""

    def __init__(self) -> None:
        self._searching = False

    def find_spec(
        self, name: str, path: Any, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in _PATCHES or self._searching:
            return None
        self._searching = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._searching = False
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            execute = loader.exec_module

            def execute_and_patch(module: ModuleType) -> None:
                execute(module)
                _PATCHES[name](module)

            loader.exec_module = execute_and_patch
        return spec


def _load_shadowed_sitecustomize() -> None:
    path = [folder for folder in sys.path if os.path.abspath(folder) != _FOLDER]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", path)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


sys.meta_path.insert(0, Patcher())
_load_shadowed_sitecustomize()
