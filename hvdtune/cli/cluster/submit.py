"""`hvdtune submit`: a batch script for a scheduler, printed or sent."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from hvdtune.cli.messages import info
from hvdtune.cli.options import RunOptions, parse_duration, parse_path, parse_text
from hvdtune.cli.parameters import (
    Argument,
    CliCommand,
    filled,
    flag,
    option,
    parameters_of,
    required,
)
from hvdtune.cli.run_command import run, spellings
from hvdtune.cli.split import part_options, split_command
from hvdtune.errors import UsageError

# The scheduler decides these.
_PLACES: Final = {
    "num_proc": "-np",
    "hosts": "-H",
    "hostfile": "--hostfile",
    "slots_per_host": "--slots-per-host",
}


def parse_time_limit(text: str) -> float:
    """Return the seconds in `90m`, `1h30m` or, in the schedulers' form, `36:30:00`.

    Raises BadParameter for a number without a unit, whose unit differs between schedulers and
    `hvdtune run`, and for two numbers with a colon, which LSF reads differently from Slurm and PBS.
    """
    given = text.strip()
    if given.isdigit() and int(given):
        raise click.BadParameter(
            f"'{given}' has no unit: write {given}m for minutes, the unit of Slurm and LSF, or "
            f"{given}s for seconds, the unit of PBS"
        )
    parts = given.split(":")
    if len(parts) == 3 and all(part.isdigit() for part in parts):
        given = "{}h{}m{}s".format(*parts)
    elif len(parts) > 1:
        raise click.BadParameter(f"'{given}' is not of the form HOURS:MINUTES:SECONDS")
    try:
        return parse_duration(given)
    except click.BadParameter:
        # parse_duration's own message has a number without a unit among its examples.
        raise click.BadParameter(
            f"'{text}' is not a time such as 90s, 90m, 1h30m or 36:30:00"
        ) from None


@dataclass(frozen=True, kw_only=True)
class SubmitOptions:
    """Send a job to a scheduler, or print its batch script.

    All options stand before the script; everything behind it is the script's own. Under Slurm, srun
    starts one task for each rank. Under PBS and LSF, and with options of `hvdtune run` such as
    --trials, the batch script starts `hvdtune run` on the first node. It must reach the other nodes
    by ssh; with --per-node, srun, pbsdsh or blaunch starts one `hvdtune run` on each node instead.

    \b
    hvdtune submit --slurm --nodes 2 --gpus-per-node 4 --time 2h train.py --lr 0.1
    hvdtune submit --pbs --nodes 2 --ranks-per-node 8 --trials 40 --dry-run train.py
    """

    command: list[str] = required(
        Argument, nargs=-1, metavar="SCRIPT", help="Script or command, and its arguments."
    )
    slurm: bool = flag(help="Submit the job to Slurm (sbatch).")
    pbs: bool = flag(help="Submit the job to PBS (qsub).")
    lsf: bool = flag(help="Submit the job to LSF (bsub).")
    dry_run: bool = flag(help="Print the batch script and do not send it.")
    nodes: int = option("--nodes", "-N", default=1, help="Number of nodes.")
    ranks_per_node: int | None = option(
        help="Ranks on each node. [default: one for each GPU, else 1]"
    )
    gpus_per_node: int | None = option(help="GPUs of each node.")
    cpus_per_rank: int | None = option(help="Processors of each rank.")
    per_node: bool = flag(
        help="Let srun, pbsdsh or blaunch start one `hvdtune run` on each node, without ssh."
    )
    time_s: float | None = option(
        "--time",
        type=parse_time_limit,
        metavar="TIME",
        help="Time limit, as in 90m, 1h30m or 36:30:00; a number needs a unit.",
    )
    queue: str | None = option(
        "--partition", "--queue", type=parse_text, help="Partition of Slurm, queue of PBS and LSF."
    )
    account: str | None = option(type=parse_text, help="Account or project to charge.")
    job_name: str | None = option(type=parse_text, help="Name of the job. [default: the script's]")
    output: str | None = option(
        type=parse_text,
        metavar="FILE",
        help="Output file. May contain the scheduler's placeholders, such as Slurm's %j.",
    )
    setup: tuple[str, ...] = option(
        type=parse_text,
        default=(),
        metavar="LINE",
        help="Shell command that sets up the environment, as in 'module load cuda'; may be "
        "repeated.",
    )
    venv: Path | None = option(
        type=parse_path, metavar="DIR", help="Virtual environment to activate."
    )
    directives: tuple[str, ...] = option(
        "--directive",
        default=(),
        metavar="OPTION",
        help="Further option for the scheduler, as in --directive=--exclusive; may be repeated.",
    )


class SubmitCommand(CliCommand):
    """Separates its own options, those of `hvdtune run` and the script's words, and submits."""

    def __init__(self) -> None:
        super().__init__(
            "submit",
            callback=_submit,
            params=parameters_of(SubmitOptions),
            help=SubmitOptions.__doc__,
        )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        own, of_run = (spellings(_options(command, ctx)) for command in (self, run))
        words, command = split_command(args, {**of_run, **own}, {})
        ours, ctx.obj = part_options(words, own, of_run)
        return super().parse_args(ctx, [*ours, "--", *command])


def _options(command: click.Command, ctx: click.Context) -> list[click.Option]:
    return [param for param in command.get_params(ctx) if isinstance(param, click.Option)]


@click.pass_context
def _submit(ctx: click.Context, /, **values: Any) -> int:
    from hvdtune.workflows.submit.script import SCHEDULERS
    from hvdtune.workflows.submit.send import send, write_script

    options = SubmitOptions(**values)
    chosen = [name for name in SCHEDULERS if getattr(options, name)]
    if len(chosen) != 1:
        raise UsageError("choose the scheduler with --slurm, --pbs or --lsf")
    scheduler = SCHEDULERS[chosen[0]]
    _check_run(ctx, options)
    script = write_script(_job(options, ctx.obj), scheduler)
    if options.dry_run:
        print(script, end="")
    else:
        info(send(script, scheduler))
    return 0


def _job(options: SubmitOptions, run_words: list[str]) -> Any:
    from hvdtune.workflows.submit.batch_job import BatchJob
    from hvdtune.workflows.submit.script import job_name

    given = {name: value for name, value in vars(options).items() if value is not None}
    given |= {
        "command": tuple(options.command),
        "folder": os.getcwd(),
        "name": options.job_name or job_name(options.command),
        "run_options": tuple(run_words),
        "ranks_per_node": options.ranks_per_node or options.gpus_per_node or 1,
        "venv": str(options.venv.absolute()) if options.venv else "",
    }
    return filled(BatchJob, given)


def _check_run(ctx: click.Context, submitted: SubmitOptions) -> None:
    """Raises UsageError now for options that `hvdtune run` would refuse in the job."""
    from hvdtune.cli import handover
    from hvdtune.cli.checks import check
    from hvdtune.cli.placement import ChosenHosts
    from hvdtune.cli.request import job_of, measurement_of, output_of, rank_variables
    from hvdtune.launcher.hosts import this_host

    words = [*ctx.obj, "--", *submitted.command]
    with run.make_context("run", words, parent=ctx) as context:
        options: RunOptions = run.invoke(context)
    for name, spelling in _PLACES.items():
        if getattr(options.placement, name) is not None:
            raise UsageError(
                f"{spelling}: the scheduler places the ranks; give --nodes and --ranks-per-node"
            )
    python = options.output.workbench_python
    is_set_up = bool(submitted.setup or submitted.venv)
    # --setup and --venv decide the meaning of a name without a folder.
    if python and (python.parent.name or python.is_absolute() or not is_set_up):
        handover.checked(python, by_option=True)
    if options.mpi.mpi:
        raise UsageError("--mpi: write the batch script by hand, with your site's mpiexec")
    check(options)
    output_of(options.output, options.timeline)
    job_of(options, ChosenHosts(this_host(1), 1), rank_variables(options))
    if measurement_of(options) is not None and not is_set_up and not handover.is_asked(python):
        handover.require("measuring with `hvdtune run`")


submit = SubmitCommand()
