"""The command horovodrun, as `python -m horovod.runner.launch -np 2 train.py` too."""

import os
import sys
from typing import NoReturn

from .._absent import LAUNCHER, stand_in

__all__ = ["parse_args", "run_commandline", "run_controller"]


def run_commandline() -> NoReturn:
    """Goes on as the command `hvdtune run` with the arguments of this process."""
    os.execv(sys.executable, [sys.executable, "-m", "hvdtune", "run", *sys.argv[1:]])


parse_args = stand_in("horovod.runner.launch.parse_args", LAUNCHER)
run_controller = stand_in("horovod.runner.launch.run_controller", LAUNCHER)
# Names that can be imported, and refuse when they are called.
globals().update(
    {
        name: stand_in(f"horovod.runner.launch.{name}", LAUNCHER)
        for name in (
            "_run", "_run_elastic", "_run_static", "check_build", "gloo_run", "gloo_run_elastic",
            "is_gloo_used", "js_run", "make_check_build_action", "mpi_run",
        )
    }
)  # fmt: skip

if __name__ == "__main__":
    run_commandline()
