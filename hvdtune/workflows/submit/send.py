"""Sends a batch script to its scheduler."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from hvdtune.errors import LaunchError
from hvdtune.workflows.submit.batch_job import BatchJob, Scheduler
from hvdtune.workflows.submit.script import render, with_interpreter


def write_script(job: BatchJob, scheduler: Scheduler) -> str:
    """Return the script of a job, with this environment's Python unless it sets up another one.

    Raises UsageError for invalid values.
    """
    program = Path(sys.executable).with_name("hvdtune")
    hvdtune = [str(program)] if program.is_file() else [sys.executable, "-m", "hvdtune"]
    return render(with_interpreter(job, sys.executable, hvdtune), scheduler)


def send(script: str, scheduler: Scheduler) -> str:
    """Return the answer of the scheduler. Raises LaunchError if it rejects the script."""
    try:
        done = subprocess.run(
            [scheduler.submit], input=script, capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise LaunchError(
            f"cannot start {scheduler.submit} of {scheduler.title}: {error.strerror}; send the job "
            "from a host that has it, or write the script to a file with --dry-run"
        ) from None
    if done.returncode:
        why = " ".join((done.stderr or done.stdout).split()) or f"exit code {done.returncode}"
        raise LaunchError(f"{scheduler.title} rejected the job: {why}")
    return done.stdout.strip()
