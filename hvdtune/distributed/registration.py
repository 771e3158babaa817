"""Makes the backend known to torch. Loaded by every `import torch`, so it imports nothing else."""

from __future__ import annotations

from typing import Any, Final

NAME: Final = "hvdtune"


def register() -> None:
    """Registers the backend; again, or where torch was built without `distributed`, nothing."""
    from torch import distributed

    if distributed.is_available() and NAME not in distributed.Backend.backend_list:
        distributed.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu"])


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
