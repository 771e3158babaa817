"""The names that Horovod gives every framework, listed once; a framework adds its own to them."""

from __future__ import annotations

from typing import Final

from hvdtune.core.rank.build_info import (
    ccl_built,
    cuda_built,
    ddl_built,
    gloo_built,
    gloo_enabled,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    rocm_built,
)
from hvdtune.core.rank.collectives import ReduceOp
from hvdtune.core.rank.process_sets import (
    ProcessSet,
    add_process_set,
    global_process_set,
    remove_process_set,
)
from hvdtune.core.rank.runtime import (
    cross_rank,
    cross_size,
    init,
    is_homogeneous,
    is_initialized,
    local_rank,
    local_size,
    mark_step,
    rank,
    shutdown,
    size,
)
from hvdtune.core.rank.script_knobs import knob, variant
from hvdtune.core.rank.spans import span
from hvdtune.errors import (
    HorovodInternalError,
    HorovodVersionMismatchError,
    HostsUpdatedInterrupt,
)

Average: Final = ReduceOp.AVERAGE
Sum: Final = ReduceOp.SUM
Adasum: Final = ReduceOp.ADASUM
Min: Final = ReduceOp.MIN
Max: Final = ReduceOp.MAX
Product: Final = ReduceOp.PRODUCT

__all__ = [
    "Adasum",
    "Average",
    "HorovodInternalError",
    "HorovodVersionMismatchError",
    "HostsUpdatedInterrupt",
    "Max",
    "Min",
    "ProcessSet",
    "Product",
    "Sum",
    "add_process_set",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "init",
    "is_homogeneous",
    "is_initialized",
    "knob",
    "local_rank",
    "local_size",
    "mark_step",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "rank",
    "remove_process_set",
    "rocm_built",
    "shutdown",
    "size",
    "span",
    "variant",
]
