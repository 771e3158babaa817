"""The operations, and the objects behind them that scripts and test suites lean on."""

from hvdtune.core.rank.runtime import is_homogeneous as is_homogeneous
from hvdtune.torch import *

from ..common.basics import HorovodBasics
from ..common.util import get_average_backwards_compatibility_fun

_basics = HorovodBasics(__file__, "mpi_lib_v2")
handle_average_backwards_compatibility = get_average_backwards_compatibility_fun(_basics)
