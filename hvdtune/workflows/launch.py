"""`hvdtune.launch` and `hvdtune run` without tuning: one launch of a job, or mpirun's."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NoReturn

from hvdtune.errors import LaunchError
from hvdtune.launcher.mpirun import mpi_start
from hvdtune.launcher.ranks import setting_environ
from hvdtune.workflows.requests import MpiRequest, RunRequest, StatusReporter
from hvdtune.workflows.session import Session

if TYPE_CHECKING:
    from hvdtune.tuner.measure.run import ExitStatus
    from hvdtune.workflows.results import LaunchResult


def launch(request: RunRequest, reporter: StatusReporter) -> LaunchResult:
    """Run the job to its end and merge its trace if one was asked for.

    Raises UsageError for a request that cannot be met, and LaunchError if a process cannot be
    started.
    """
    output = request.output
    with Session(request, reporter) as session:
        job = session.job
        session.open_output()
        if job.restart is not None:
            from hvdtune.workflows.restart import named_starter

            starter, setting = named_starter(job)
            return session.finish(lambda: starter.run_once(setting, session.writers))
        if job.elastic is None and job.values.profile is not None:
            from hvdtune.workflows.fingerprint import warn_of_profile

            warn_of_profile(job, reporter)
        if output.folder is not None:
            session.open_folder()
        session.open_job()
        return session.finish(lambda: _run(session, verbose=output.verbose))


def _run(session: Session, *, verbose: bool) -> ExitStatus:
    job = session.job
    running = session.start(job.values.core_setting())
    if job.elastic is None:
        if verbose:
            for slot, pid in zip(job.plan.slots, running.pids, strict=True):
                session.reporter.info(f"rank {slot.rank} on {slot.host}: pid {pid}")
        if session.recordings is not None and job.values.profile is not None:
            from hvdtune.workflows.fingerprint import warn_of_other_tensors

            profile, recordings = job.values.profile, session.recordings
            warn_of_other_tensors(profile, running, recordings, session.reporter)
    report: ExitStatus = running.wait()
    return report


def run_by_mpi(request: RunRequest, reporter: StatusReporter) -> NoReturn:
    """Become mpirun, whose exit code is the job's.

    Raises UsageError for options that MPI does not support, LaunchError if mpirun cannot be
    started.
    """
    job = request.job
    assert isinstance(job, MpiRequest)
    setting = setting_environ(job.values.core_setting())
    command, environ = mpi_start(job.job, {**job.variables, **setting})
    if request.output.verbose:
        reporter.info(" ".join(command))
    try:
        os.execve(command[0], command, environ)
    except OSError as error:
        raise LaunchError(f"cannot start {command[0]}: {error.strerror}") from None
