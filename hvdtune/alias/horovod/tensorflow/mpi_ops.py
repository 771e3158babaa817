"""The operations, and the objects behind them that scripts and test suites lean on."""

from typing import Any

from hvdtune.core.rank.basics import Sum
from hvdtune.core.rank.collectives import ReduceOp
from hvdtune.core.rank.process_sets import ProcessSet, global_process_set
from hvdtune.tensorflow import *
from hvdtune.tensorflow.collectives import allreduce

from ..common.basics import HorovodBasics
from ..common.util import (
    get_average_backwards_compatibility_fun,
    gpu_available,
    num_rank_is_power_2,
)
from .util import _executing_eagerly

_basics = HorovodBasics(__file__, "mpi_lib")
handle_average_backwards_compatibility = get_average_backwards_compatibility_fun(_basics)
check_num_rank_power_of_2 = num_rank_is_power_2


def _allreduce(
    tensor: Any,
    name: str | None = None,
    op: ReduceOp | int = Sum,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The allreduce of one dense tensor, which unlike the public one adds up by default."""
    return allreduce(
        tensor,
        op=op,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        name=name,
        process_set=process_set,
        ignore_name_scope=ignore_name_scope,
    )
