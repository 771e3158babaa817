"""The variables that Horovod's installation asks, which mean nothing to hvdtune."""

from typing import Final

# Horovod's installation asks these; HOROVOD_CPU_OPERATIONS and HOROVOD_GPU_OPERATIONS, which mean
# something to hvdtune, are not among them.
BUILD_TIME: Final = (
    *(
        f"HOROVOD_{wish}_{part}"
        for wish in ("WITH", "WITHOUT")
        for part in ("TENSORFLOW", "PYTORCH", "MXNET", "MPI", "GLOO", "NVTX")
    ),
    *(f"HOROVOD_{library}_HOME" for library in ("CUDA", "ROCM", "NCCL")),
    *(f"HOROVOD_NCCL_{part}" for part in ("INCLUDE", "LIB", "LINK")),
    *(
        f"HOROVOD_GPU_{operation}"
        for operation in (
            "ALLREDUCE", "ALLGATHER", "BROADCAST", "ALLTOALL", "REDUCESCATTER",
        )
    ),
    "HOROVOD_GPU",
    "HOROVOD_ALLOW_MIXED_GPU_IMPL",
    "HOROVOD_NVTX_INCLUDE",
    "HOROVOD_BUILD_ARCH_FLAGS",
    "HOROVOD_BUILD_CUDA_CC_LIST",
    "HOROVOD_CMAKE",
    "HOROVOD_DEBUG",
    "HOROVOD_SKIP_COMPILE",
    "HOROVOD_LOCAL_VERSION",
)  # fmt: skip
