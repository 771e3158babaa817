"""Horovod's object behind its functions; here the functions come first."""

from typing import Final

from hvdtune import recording
from hvdtune.core import built, process_sets, runtime
from hvdtune.core.collectives import ReduceOp


class HorovodBasics:
    """What a process asks about its job. Every instance speaks of the process's one job.

    Args:
        pkg_path, args: where Horovod looks for its library; hvdtune knows where its own is.
    """

    Average: Final = ReduceOp.AVERAGE
    Sum: Final = ReduceOp.SUM
    Adasum: Final = ReduceOp.ADASUM
    Min: Final = ReduceOp.MIN
    Max: Final = ReduceOp.MAX
    Product: Final = ReduceOp.PRODUCT

    def __init__(self, pkg_path: str, *args: str) -> None:
        pass

    init = staticmethod(runtime.init)
    shutdown = staticmethod(runtime.shutdown)
    is_initialized = staticmethod(runtime.is_initialized)
    start_timeline = staticmethod(recording.start_timeline)
    stop_timeline = staticmethod(recording.stop_timeline)
    size = staticmethod(runtime.size)
    local_size = staticmethod(runtime.local_size)
    cross_size = staticmethod(runtime.cross_size)
    rank = staticmethod(runtime.rank)
    local_rank = staticmethod(runtime.local_rank)
    cross_rank = staticmethod(runtime.cross_rank)
    is_homogeneous = staticmethod(runtime.is_homogeneous)
    mpi_threads_supported = staticmethod(built.mpi_threads_supported)
    mpi_enabled = staticmethod(built.mpi_enabled)
    mpi_built = staticmethod(built.mpi_built)
    gloo_enabled = staticmethod(built.gloo_enabled)
    gloo_built = staticmethod(built.gloo_built)
    nccl_built = staticmethod(built.nccl_built)
    ddl_built = staticmethod(built.ddl_built)
    ccl_built = staticmethod(built.ccl_built)
    cuda_built = staticmethod(built.cuda_built)
    rocm_built = staticmethod(built.rocm_built)
    _get_process_set_ids_and_ranks = staticmethod(process_sets.ids_and_ranks)
