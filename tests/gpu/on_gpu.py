"""Jobs whose ranks share this machine's GPUs, by NCCL, for tests that need a real one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch

from tests.contract import framework
from tests.parallel import ranks

# CUDA is not asked here: a process that has used it cannot fork those that want to.
NEEDS_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
BITS = ("nccl", "exact")
TORCH = "torch on a GPU"


def variables(size: int) -> list[dict[str, str]]:
    """What lets NCCL take the ranks of one GPU for ranks of several hosts.

    It refuses two ranks that have the same host and the same GPU. With several GPUs, each rank has
    one of its own, and NCCL is left as it is.
    """
    if torch.cuda.device_count() >= size:
        return [{} for _ in range(size)]
    apart = {"NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1", "NCCL_NET": "Socket"}
    return [{"NCCL_HOSTID": f"rank-{rank}", **apart} for rank in range(size)]


def _options(size: int, options: dict[str, Any]) -> dict[str, Any]:
    return {"gpu_operations": "nccl", "variables": variables(size), **options}


def start(
    body: Callable[..., Any], size: int, *arguments: Any, **options: Any
) -> AbstractContextManager[ranks.Job]:
    """As tests.parallel.ranks.start."""
    return ranks.start(on_own_gpu, size, body, *arguments, **_options(size, options))


def run(body: Callable[..., Any], size: int, *arguments: Any, **options: Any) -> list[Any]:
    """As tests.parallel.ranks.run."""
    return ranks.run(on_own_gpu, size, body, *arguments, **_options(size, options))


def run_contract(body: Callable[..., Any], size: int, **options: Any) -> list[Any]:
    """As `run`, for what the contract suite does with a framework's tensors."""
    assert TORCH in framework.BY_NAME
    return run(body, size, TORCH, timeout_s=240.0, **options)


def on_own_gpu(body: Callable[..., Any], *arguments: Any) -> Any:
    import hvdtune.torch as hvd

    torch.cuda.set_device(hvd.local_rank() % torch.cuda.device_count())
    return body(*arguments)
