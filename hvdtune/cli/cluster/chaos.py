"""`hvdtune chaos`: an elastic job whose ranks are killed and stopped on purpose."""

from __future__ import annotations

from dataclasses import dataclass

import click

from hvdtune.cli.options import RunCommand, RunOptions, parse_duration
from hvdtune.cli.parameters import WholeNumber, option
from hvdtune.cli.verify_options import is_of_a_search


@dataclass(frozen=True, kw_only=True)
class ChaosOptions(RunOptions):
    """Run an elastic job while its ranks are killed and stopped, and say what that cost.

    A rank of the script's training is struck while it trains with others. It returns after a
    second, unless --blacklist-cooldown-range says otherwise. At the end an account tells how many
    resets there were, what each of their phases took, and how much of the speed was left. The exit
    code is the job's.

    \b
    hvdtune chaos --kill-every 30s -np 4 train.py
    hvdtune chaos --kill-every 30s --stop-every 45s --min-np 2 -np 4 train.py
    """

    kill_every: float | None = option(
        type=parse_duration, metavar="TIME", help="Kill a rank so often, as in 30s."
    )
    stop_every: float | None = option(
        type=parse_duration,
        metavar="TIME",
        help="Stop a rank of this machine (SIGSTOP) so often, as in 45s.",
    )
    seed: int = option(type=WholeNumber(0), default=0, help="Seed of the choice of ranks.")


class ChaosCommand(RunCommand):
    """Leaves out the options of a search and lists the faults first."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        params = [option for option in super().get_params(ctx) if not is_of_a_search(option.name)]
        return sorted(params, key=lambda option: option.name not in ("kill_every", "stop_every"))


chaos = ChaosCommand("chaos", ChaosOptions)
