"""Registers the backend with torch. Loaded by every `import torch`, so it imports nothing else."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterator
from typing import Any, Final

NAME: Final = "hvdtune"


def register() -> None:
    """Registers the backend, once, if torch was built with `distributed`.

    From then on torch's default, `env://`, also finds the ranks of launchers that do not set
    torch's variables.
    """
    from torch import distributed

    if distributed.is_available() and NAME not in distributed.Backend.backend_list:
        distributed.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu"])
        handlers = importlib.import_module("torch.distributed.rendezvous")._rendezvous_handlers
        handlers["env"] = functools.partial(_meet, handlers["env"])


def _meet(usual: Callable[..., Iterator[Any]], url: str, **options: Any) -> Iterator[Any]:
    """Meet by a launcher's variables if torch's are missing, else in torch's way, `usual`."""
    from hvdtune.core.config import environment
    from hvdtune.distributed import rendezvous

    if rendezvous.is_ours(environment.inherited_environ(), url):
        return rendezvous.meet(url, **options)
    return usual(url, **options)


def _create(options: Any, backend_options: object) -> Any:
    """Called by torch for every group, on its members.

    Args:
        options: a `torch._C._distributed_c10d._DistributedBackendOptions`.
    """
    from hvdtune.distributed.process_group import create
    from hvdtune.errors import UsageError

    if backend_options is not None:
        raise UsageError(f"The backend {NAME} has no pg_options. Omit the argument")
    return create(NAME, options)
