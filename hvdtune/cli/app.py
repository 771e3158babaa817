"""Commands and their one-line errors."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Final, Literal

import click

from hvdtune.cli import messages
from hvdtune.cli.cluster.chaos import chaos
from hvdtune.cli.cluster.preflight import preflight
from hvdtune.cli.cluster.submit import submit
from hvdtune.cli.dashboard import dashboard
from hvdtune.cli.options import RunOptions, show_version
from hvdtune.cli.parameters import command, explained, group, json_option
from hvdtune.cli.run_command import run
from hvdtune.cli.study import study
from hvdtune.cli.traces import timeline
from hvdtune.cli.verify_options import aa, compare, verify
from hvdtune.core.config.environment import training_python, unknown_variables
from hvdtune.errors import HvdtuneError
from hvdtune.streams import open_missing_streams, show_any_text

# The commands that read hvdtune's variables for jobs.
_READ_VARIABLES: Final = (
    "run", "chaos", "verify", "aa", "compare", "submit", "preflight", "doctor",
)  # fmt: skip

# The RuntimeErrors of Python and of the core where the system starts no thread.
_NO_THREAD: Final = ("can't start new thread", os.strerror(errno.EAGAIN))


@group("hvdtune", context_settings={"max_content_width": 100, "show_default": True})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=show_version,
    help="Print the version.",
)
def app() -> None:
    """Data-parallel training with a tuning workbench."""


def main(args: Sequence[str] | None = None) -> None:
    """Run the command and exit.

    The exit code is 0, 1 for a failure, 2 for a usage error, 3 or 4 for a verdict
    (`tuner.verdict`), or the exit code of the job.
    """
    open_missing_streams()
    show_any_text()
    words = sys.argv[1:] if args is None else args
    try:
        if words and words[0] in _READ_VARIABLES and not training_python():
            for text in unknown_variables():
                messages.warning(text)
        code = act(parse(words), words)
        sys.stdout.flush()
    except (HvdtuneError, click.ClickException) as error:
        code = error.exit_code
        text = messages.spelled(error)
        if text.startswith("Usage: "):  # no command was given: the help is the message
            print(text, file=sys.stderr)
        else:
            messages.error(text)
    except click.Abort:
        code = 130
    except KeyboardInterrupt as error:
        code = getattr(error, "exit_code", 130)
        messages.error(str(error) or "stopped by SIGINT")
    except BrokenPipeError:  # the reader has exited, as after `| head`
        _drop_output()
        code = 1
    except OSError as error:
        code = 1
        if error.filename is None:
            _drop_output()
            messages.error(f"operating system error: {error.strerror or error}")
        else:
            messages.error(f"{os.fsdecode(error.filename)}: {error.strerror}")
    except RuntimeError as error:
        if str(error) not in _NO_THREAD:
            raise
        code = 1
        messages.error("cannot start a thread: the limit of processes is reached (ulimit -u)")
    except ModuleNotFoundError as error:
        if error.name != "hvdtune.core._native":
            raise
        code = 1
        messages.error("the native module hvdtune.core._native is not built: install hvdtune again")
    sys.exit(code)


def _drop_output() -> None:
    """Drop the remaining output, which Python would write at its exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def horovodrun() -> None:
    """The program `horovodrun`: Horovod's own where Horovod is installed, else `hvdtune run`.

    Either package may have written the program last, so it must mean the same in both cases.
    """
    try:
        entries = list(metadata.distribution("horovod").entry_points)
    except metadata.PackageNotFoundError:
        entries = []
    program = next((entry for entry in entries if entry.name == "horovodrun"), None)
    if program is None:
        main(["run", *sys.argv[1:]])
    else:
        sys.exit(program.load()())


def parse(args: Sequence[str]) -> Any:
    """Run the command and return its exit code; for `run`, return the options.

    Raises ClickException and HvdtuneError.
    """
    try:
        with app.make_context("hvdtune", [*args], obj=[*args]) as context:
            return app.invoke(context)
    except click.exceptions.Exit as end:  # after --help or --version
        return end.exit_code


def act(parsed: Any, words: Sequence[str]) -> int:
    """Run the job of `run`; other commands have run already and returned their exit code."""
    if isinstance(parsed, RunOptions):
        from hvdtune.cli.run import run

        return run(parsed, words)
    return int(parsed or 0)


@command()
@json_option
def doctor(*, as_json: bool) -> int:
    """Show which parts of hvdtune work on this machine, and how to get the missing ones.

    The exit code is 1 if hvdtune cannot run, or if `hvd.init()` would raise an error.
    """
    from hvdtune.doctor import examine, is_ready, render_json, render_text

    findings = examine()
    print(render_json(findings) if as_json else render_text(findings))
    return 0 if is_ready(findings) else 1


@group()
def build() -> None:
    """Compile the parts that depend on this machine's libraries."""


_check = click.option("--check", is_flag=True, help="Only print the built components.")


@build.command("mpi")
@_check
def build_mpi(*, check: bool) -> int:
    """Compile hvdtune's plugins for this machine's MPI libraries; needs a C++ compiler."""
    from hvdtune.workflows.build import build_mpi

    failed = False
    for each in build_mpi(check=check):
        header = each.mpi.include / "mpi.h" if each.mpi.include else "none"
        print(f"{each.mpi.version}: {each.mpi.library}")
        print(f"  header    {header}")
        print(f"  plugin    {each.plugin or each.problem}")
        failed |= each.plugin is None
    return int(failed)


@build.command("tensorflow")
@_check
def build_tensorflow(*, check: bool) -> int:
    """Compile hvdtune's operations for the installed TensorFlow; needs a C++ compiler."""
    from hvdtune.workflows.build import build_tensorflow

    built = build_tensorflow(check=check)
    print(f"TensorFlow {built.version}")
    print(f"  operations  {built.library or 'not built: run `hvdtune build tensorflow`'}")
    return int(built.library is None)


@group()
def profile() -> None:
    """Convert settings for other programs and from them."""


@profile.command("export")
@explained("path", type=Path, metavar="PROFILE", help="The profile.yaml of a study.")
@click.option(
    "--to",
    type=click.Choice(["env", "horovod-env", "horovod-yaml", "nccl", "ddp"]),
    required=True,
    help="The program that will read it.",
)
def export_profile(
    path: Path, *, to: Literal["env", "horovod-env", "horovod-yaml", "nccl", "ddp"]
) -> int:
    """Print a profile's setting as variables or options of another program."""
    from hvdtune.cli.profile import export

    return export(path, to)


@profile.command("import")
@explained("path", type=Path, metavar="LOG", help="CSV log of Horovod's autotune.")
@click.option(
    "--output", "-o", type=Path, help="The profile to write. [default: LOG's name with .yaml]"
)
def import_log(path: Path, *, output: Path | None) -> int:
    """Assess a log of Horovod's autotune, and write its choice as a profile."""
    from hvdtune.cli.profile import import_autotune

    return import_autotune(path, output)


# In the order of the help
for _command in (
    run,
    chaos,
    verify,
    aa,
    compare,
    submit,
    doctor,
    preflight,
    dashboard,
    timeline,
    build,
    study,
    profile,
):
    app.add_command(_command)
