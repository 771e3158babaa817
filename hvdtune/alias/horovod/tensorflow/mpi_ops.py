"""The operations, and the objects behind them that scripts and test suites lean on."""

from hvdtune.tensorflow import *

from ..common.basics import HorovodBasics
from ..common.util import get_average_backwards_compatibility_fun, num_rank_is_power_2

_basics = HorovodBasics(__file__, "mpi_lib")
handle_average_backwards_compatibility = get_average_backwards_compatibility_fun(_basics)
check_num_rank_power_of_2 = num_rank_is_power_2
