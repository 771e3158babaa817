"""Commands and their one-line errors."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import typer
from typer.exceptions import TyperException

import hvdtune
from hvdtune.cli import messages, traces, why
from hvdtune.cli.options import RunCommand, RunOptions
from hvdtune.cli.study import app as study
from hvdtune.cli.verify_options import AaCommand, AaOptions, CompareCommand, VerifyOptions
from hvdtune.errors import HvdtuneError

Target = Literal["env", "horovod-env", "horovod-yaml", "nccl", "ddp"]

# Rich's panels cut long option names at 80 columns and triple the time to the help.
_PLAIN: Final[dict[str, Any]] = {
    "no_args_is_help": True,
    "rich_markup_mode": None,
    "pretty_exceptions_enable": False,
    "context_settings": {"max_content_width": 100},
}

app = typer.Typer(name="hvdtune", add_completion=False, **_PLAIN)
timeline = typer.Typer(help="Record traces and read them.", **_PLAIN)
timeline.callback()(traces.shown)
traces.register(timeline)
why.register(timeline)
app.add_typer(timeline, name="timeline")
build = typer.Typer(help="Compile the parts that depend on this machine's libraries.", **_PLAIN)
app.add_typer(build, name="build")
app.add_typer(study, name="study")
profile = typer.Typer(help="Convert settings for other programs and from them.", **_PLAIN)
app.add_typer(profile, name="profile")
app.command("run", cls=RunCommand)(RunOptions)
app.command("verify", cls=CompareCommand)(VerifyOptions)
app.command("aa", cls=AaCommand)(AaOptions)


def main(args: Sequence[str] | None = None) -> None:
    """Parses, acts and exits.

    0, 1 for a failure, 2 for a usage error, 3 and 4 for verdicts (`tuner.verdict`), else the code
    of the job.
    """
    try:
        code = act(app(args=args, prog_name="hvdtune", standalone_mode=False))
    except (HvdtuneError, TyperException) as error:
        code = error.exit_code
        text = messages.spelled(error)
        if text.startswith("Usage: "):  # nothing was asked for: Typer answers with the help
            print(text, file=sys.stderr)
        elif text:
            messages.error(text)
    except typer.Abort:
        code = 130
    except KeyboardInterrupt as error:
        code = getattr(error, "exit_code", 130)
        messages.error(str(error) or "stopped by SIGINT")
    except ModuleNotFoundError as error:
        if error.name != "hvdtune.core._native":
            raise
        code = 1
        messages.error("the native module hvdtune.core._native is not built: install hvdtune again")
    sys.exit(code)


def act(parsed: Any) -> int:
    """Runs what was parsed; other commands have run already and left their exit code."""
    if isinstance(parsed, RunOptions):
        from hvdtune.cli.run import run

        return run(parsed)
    return int(parsed or 0)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"hvdtune {hvdtune.__version__}")
        raise typer.Exit


@app.callback()
def top(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Data-parallel training with a tuning workbench."""


@app.command()
def doctor(*, as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> int:
    """Show what this machine has for hvdtune, and how to get what is missing."""
    from hvdtune.doctor import examine, render_json, render_text

    findings = examine()
    print(render_json(findings) if as_json else render_text(findings))
    return 0


@build.command("mpi")
def build_mpi(
    *, check: Annotated[bool, typer.Option("--check", help="Only say what is built.")] = False
) -> int:
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
def build_tensorflow(
    *, check: Annotated[bool, typer.Option("--check", help="Only say what is built.")] = False
) -> int:
    """Compile hvdtune's operations for the installed TensorFlow; needs a C++ compiler."""
    from hvdtune.workflows.build import build_tensorflow

    built = build_tensorflow(check=check)
    print(f"TensorFlow {built.version}")
    print(f"  operations  {built.library or 'not built: run `hvdtune build tensorflow`'}")
    return int(built.library is None)


@profile.command("export")
def export_profile(
    path: Annotated[Path, typer.Argument(metavar="PROFILE", help="The profile.yaml of a study.")],
    *,
    to: Annotated[Target, typer.Option(help="The program that will read it.")],
) -> int:
    """Print a profile's setting as variables or options of another program."""
    from hvdtune.cli.profile import export

    return export(path, to)


@profile.command("import")
def import_log(
    path: Annotated[Path, typer.Argument(metavar="LOG", help="CSV log of Horovod's autotune.")],
    *,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="The profile to write. [default: LOG's name with .yaml]"
        ),
    ] = None,
) -> int:
    """Say what a log of Horovod's autotune proves, and write its choice as a profile."""
    from hvdtune.cli.profile import import_autotune

    return import_autotune(path, output)


@timeline.command()
def view(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH...", help="Traces or run folders.")],
    *,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0: any free one.")
    ] = 8050,
    browser: Annotated[bool, typer.Option(help="Open a browser window.")] = True,
) -> int:
    """Open the dashboard on traces or run folders."""
    from hvdtune.cli.dashboard import show

    return show(paths, host, port, browser=browser)


@app.command()
def dashboard(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[RUN|TRACE|STUDY]...", help="What to show. [default: the newest of ./runs]"
        ),
    ] = None,
    *,
    attach: Annotated[
        str | None,
        typer.Option(
            metavar="PID|RUN", help="Show a running job: one of its processes, or its run folder."
        ),
    ] = None,
    link_gbps: Annotated[
        float | None, typer.Option(min=0.001, help="Bandwidth of a link between hosts, in Gbit/s.")
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0: any free one.")
    ] = 8050,
    browser: Annotated[bool, typer.Option(help="Open a browser window.")] = True,
) -> int:
    """Show runs, traces, studies and running jobs in a browser."""
    from hvdtune.cli.dashboard import show

    return show(paths or [], host, port, browser=browser, attach=attach, link_gbps=link_gbps)


@timeline.command()
def record(
    job: Annotated[
        str,
        typer.Argument(metavar="PID|RUN", help="A process of a running job, or its run folder."),
    ],
    *,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Number of whole steps to record.")
    ] = None,
    seconds: Annotated[float | None, typer.Option(min=0.1, help="Seconds to record.")] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The trace to write. [default: trace-PID.json]"),
    ] = None,
    max_mb: Annotated[
        float, typer.Option(min=1, help="MiB of raw trace to keep per rank; the oldest is dropped.")
    ] = 256,
) -> int:
    """Record a trace of a running job, until Ctrl-C or for --steps or --seconds."""
    from hvdtune.workflows.record import record
    from hvdtune.workflows.requests import RecordRequest

    request = RecordRequest(steps, seconds, max_mb)
    trace = record(job, output, request, messages.TerminalReporter())
    messages.info(f"trace: {trace}")
    return 0
