"""The operations, and the objects behind them that scripts and test suites lean on."""

from hvdtune.core.rank.runtime import is_homogeneous as is_homogeneous
from hvdtune.torch import *

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
