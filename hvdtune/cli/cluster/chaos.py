"""`hvdtune chaos`: an elastic job whose ranks are killed and stopped on purpose."""

from dataclasses import dataclass

from hvdtune.cli.options import RunOptions, duration
from hvdtune.cli.parameters import WholeNumber, option
from hvdtune.cli.run_command import RunCommand
from hvdtune.cli.verify_options import OF_A_SEARCH


@dataclass(frozen=True, kw_only=True)
class ChaosOptions(RunOptions):
    """Run an elastic job, kill and stop its ranks, and report the cost.

    Only ranks that train with others are killed or stopped. A killed rank returns after a second,
    unless --blacklist-cooldown-range is given. The final report contains the number of resets, the
    time of each of their phases and the remaining speed. The exit code is the job's.

    \b
    hvdtune chaos --kill-every 30s -np 4 train.py
    hvdtune chaos --kill-every 30s --stop-every 45s --min-np 2 -np 4 train.py
    """

    kill_every: float | None = duration(
        behind=True, help="Time between two kills of a rank, as in 30s."
    )
    stop_every: float | None = duration(
        behind=True, help="Time between two stops (SIGSTOP) of a rank of this machine, as in 45s."
    )
    seed: int = option(type=WholeNumber(0), default=0, help="Seed of the choice of ranks.")


chaos = RunCommand("chaos", ChaosOptions, OF_A_SEARCH)
