"""Makes the backend known to torch. Loaded by every `import torch`, so it imports nothing else."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterator
from typing import Any, Final

NAME: Final = "hvdtune"


def register() -> None:
    """Registers the backend; again, or where torch was built without `distributed`, nothing.

    From then on `env://`, which is how groups meet by default, also finds the ranks of launchers
    that do not set torch's variables.
    """
    from torch import distributed

    if distributed.is_available() and NAME not in distributed.Backend.backend_list:
        distributed.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu"])
        handlers = importlib.import_module("torch.distributed.rendezvous")._rendezvous_handlers
        handlers["env"] = functools.partial(_meet, handlers["env"])


def _meet(usual: Callable[..., Iterator[Any]], url: str, **options: Any) -> Iterator[Any]:
    """Torch's way to meet, `usual`, unless its variables are not there and a launcher's are."""
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
        raise UsageError(f"the backend {NAME} has no pg_options; leave the argument out")
    return create(NAME, options)
