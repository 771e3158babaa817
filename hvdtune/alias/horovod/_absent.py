"""The parts of Horovod that this version of hvdtune does not have, and what it says of them.

A module is absent as a whole, so that programs which try its import can do without it. Where some
names of a module make sense here, it exists, and its other names can be imported too: they refuse
when they are used, because many a program imports what it seldom calls.
"""

import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Final, NoReturn

from hvdtune import __version__

_LATER: Final = "it comes in a later version"
LAUNCHER: Final = (
    "hvdtune has a launcher of its own: call horovod.run, or start the command hvdtune run"
)

# Below the package `horovod`; modules inside of these are absent with them.
MODULES: Final = {
    "data": _LATER,
    "mxnet": _LATER,
    "ray": _LATER,
    "spark": _LATER,
    "tensorflow.data": _LATER,
    "runner.elastic": "hvdtune run --min-np starts an elastic job, and scripts use "
    "horovod.torch.elastic, horovod.tensorflow.elastic or horovod.keras.elastic",
    "_keras": "use horovod.keras or horovod.tensorflow.keras",
    "tensorflow.mpi_lib": "its operations are functions of horovod.tensorflow",
    "torch.mpi_lib_v2": "its operations are functions of horovod.torch",
    **dict.fromkeys(
        (
            "runner.common.service",
            "runner.common.util.codec",
            "runner.common.util.config_parser",
            "runner.common.util.host_hash",
            "runner.common.util.network",
            "runner.common.util.safe_shell_exec",
            "runner.common.util.secret",
            "runner.common.util.settings",
            "runner.common.util.timeout",
            "runner.common.util.tiny_shell_exec",
            "runner.driver",
            "runner.gloo_run",
            "runner.http",
            "runner.js_run",
            "runner.mpi_run",
            "runner.run_task",
            "runner.task",
            "runner.task_fn",
            "runner.util.cache",
            "runner.util.lsf",
            "runner.util.network",
            "runner.util.remote",
            "runner.util.streams",
        ),
        LAUNCHER,
    ),
}


def stand_in(name: str, reason: str) -> Callable[..., NoReturn]:
    """Stands for the function or class of this full name: a call raises NotImplementedError."""

    def refuse(*_: object, **__: object) -> NoReturn:
        raise NotImplementedError(sentence(name, reason))

    refuse.__name__ = refuse.__qualname__ = name.rpartition(".")[2]
    return refuse


def sentence(name: str, reason: str) -> str:
    """The refusal of an absent thing of this full name."""
    return f"hvdtune {__version__} has no {name}: {reason}"


class _Refusal(Loader):
    def __init__(self, reason: str) -> None:
        self._reason = reason

    def exec_module(self, module: ModuleType) -> None:
        raise ImportError(sentence(module.__name__, self._reason), name=module.__name__)


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package, _, name = fullname.partition(".")
        reason = MODULES.get(name) if package == "horovod" else None
        return None if reason is None else ModuleSpec(fullname, _Refusal(reason))


def watch_imports() -> None:
    """Makes the import of an absent module an ImportError that says why."""
    # Last: a module that exists is found first.
    sys.meta_path.append(_Finder())
