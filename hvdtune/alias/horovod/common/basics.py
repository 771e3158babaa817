"""Horovod's object behind its functions; here the functions come first."""

from typing import Final

from hvdtune import recording
from hvdtune.core.rank import build_info, process_sets, runtime
from hvdtune.core.rank.collectives import ReduceOp


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
    mpi_threads_supported = staticmethod(build_info.mpi_threads_supported)
    mpi_enabled = staticmethod(build_info.mpi_enabled)
    mpi_built = staticmethod(build_info.mpi_built)
    gloo_enabled = staticmethod(build_info.gloo_enabled)
    gloo_built = staticmethod(build_info.gloo_built)
    nccl_built = staticmethod(build_info.nccl_built)
    ddl_built = staticmethod(build_info.ddl_built)
    ccl_built = staticmethod(build_info.ccl_built)
    cuda_built = staticmethod(build_info.cuda_built)
    rocm_built = staticmethod(build_info.rocm_built)
    _get_process_set_ids_and_ranks = staticmethod(process_sets.ids_and_ranks)
