"""The operations, and the objects behind them that scripts and test suites lean on."""

from typing import Final, NoReturn

from hvdtune.core.rank.runtime import is_homogeneous as is_homogeneous
from hvdtune.torch import *

from .._absent import sentence, stand_in
from ..common.basics import HorovodBasics
from ..common.util import (
    check_installed_version,
    get_average_backwards_compatibility_fun,
    gpu_available,
    num_rank_is_power_2,
)

_NULL = ""  # the name of what has none
_basics = HorovodBasics(__file__, "mpi_lib_v2")
handle_average_backwards_compatibility = get_average_backwards_compatibility_fun(_basics)
check_num_rank_power_of_2 = num_rank_is_power_2

_OPERATIONS: Final = (
    "allreduce", "grouped_allreduce", "allgather", "grouped_allgather", "broadcast", "alltoall",
    "reducescatter", "grouped_reducescatter",
)  # fmt: skip
# What Horovod's functions consist of: names that can be imported, and refuse when they are called.
globals().update(
    {
        f"_{operation}{part}": stand_in(
            f"horovod.torch.mpi_ops._{operation}{part}", f"call {operation}_async"
        )
        for operation in _OPERATIONS
        for part in ("_async", "_function_factory")
    }
)
for _name in ("_check_function", "_check_has_gpu"):
    globals()[_name] = stand_in(
        f"horovod.torch.mpi_ops.{_name}", "each operation checks its own tensors"
    )
_ABSENT: Final = {
    "_handle_map": "give a handle to synchronize, which returns the result, or to poll",
    **{
        f"Horovod{operation.title().replace('_', '')}": f"call {operation}, which has a gradient"
        for operation in _OPERATIONS
    },
}


def __getattr__(name: str) -> NoReturn:
    if name in _ABSENT:
        raise AttributeError(sentence(f"{__name__}.{name}", _ABSENT[name]))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
