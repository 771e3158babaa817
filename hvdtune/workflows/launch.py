"""One launch of a job, and what it leaves; or mpirun launches it in place of this process."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from hvdtune import workbench
from hvdtune.core.job.interrupt import Stopped, stop_signals
from hvdtune.errors import ArgumentError, LaunchError
from hvdtune.launcher.mpirun import mpi_start
from hvdtune.launcher.output import Writer, file_writer
from hvdtune.launcher.run import Job, setting_environ
from hvdtune.workflows.launches import output_writers
from hvdtune.workflows.requests import (
    JobRequest,
    MpiRequest,
    OutputRequest,
    StatusReporter,
    TraceRequest,
    report_exit,
)
from hvdtune.workflows.results import LaunchResult
from hvdtune.workflows.run_folder import RunFolder, RunIdentity
from hvdtune.workflows.traces import write_traces


def launch(
    job: JobRequest, trace: TraceRequest, output: OutputRequest, reporter: StatusReporter
) -> LaunchResult:
    """Runs the job to its end and merges its trace where one is asked for."""
    if job.values.profile is not None:
        from hvdtune.workflows.fingerprint import warn_of_profile

        warn_of_profile(job, reporter)
    with ExitStack() as stack:
        writers = output_writers(output, reporter, len(job.plan.slots), stack)
        raw, target = None, trace.path
        if output.folder is not None:
            slots = job.plan.slots
            identity = RunIdentity(job.words, tuple(slot.host for slot in slots))
            folder = stack.enter_context(RunFolder(output.folder, identity))
            number = folder.next_launch()
            log = stack.enter_context(folder.log(number).open("ab", buffering=0))
            writers.append(file_writer(log))
            raw, target = folder.ranks(number), target or folder.trace
        elif target is not None:
            raw = raw_folder_beside(target)
        try:
            result = _run(job, raw, writers, reporter, verbose=output.verbose)
        except Stopped as stop:
            result = LaunchResult(stop.exit_code, str(stop))
        report_exit(reporter, result.exit_code, result.reason)
        traces: tuple[Path, ...] = ()
        if raw and target:
            traces = finish_traces(raw, target, trace, output, reporter)
    return replace(result, run_dir=output.folder, traces=traces)


def _run(
    job: JobRequest,
    raw: Path | None,
    writers: list[Writer],
    reporter: StatusReporter,
    *,
    verbose: bool,
) -> LaunchResult:
    options = replace(job.options, timeline=str(raw / "rank-%r.hvt") if raw else "")
    setting, profile = job.values.core_setting(), job.values.profile
    with stop_signals(), Job.start(job.plan, setting, options, writers=writers) as running:
        if verbose:
            for slot, pid in zip(job.plan.slots, running.pids, strict=True):
                reporter.info(f"rank {slot.rank} on {slot.host}: pid {pid}")
        if raw is not None and profile is not None:
            from hvdtune.workflows.fingerprint import warn_of_other_tensors

            warn_of_other_tensors(profile, running, raw, reporter)
        report = running.wait()
    if running.write_error:
        reporter.warning(running.write_error)
    return LaunchResult(report.returncode, report.reason, report.tail)


def finish_traces(
    raw: Path, target: Path, trace: TraceRequest, output: OutputRequest, reporter: StatusReporter
) -> tuple[Path, ...]:
    """Merges what the ranks have recorded in `raw`, and says where; without the workbench the
    recordings are kept. Returns the traces written. Raises HvdtuneError when one cannot be."""
    traces: tuple[Path, ...] = ()
    if workbench.missing():
        if any(raw.iterdir()):
            shape = {"horovod": trace.horovod, "mark_cycles": trace.mark_cycles}
            reporter.info(workbench.keep_recordings(raw, target, **shape))
    else:
        traces = write_traces(raw, target, trace, reporter)
        for written in traces:
            reporter.info(f"trace: {written}")
    if raw.exists() and output.folder is None:
        shutil.rmtree(raw)
    return traces


def raw_folder_beside(target: Path) -> Path:
    """Where ranks record what will be `target`. Raises ArgumentError."""
    try:
        return Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.absolute().parent))
    except OSError as error:
        problem = (
            f"{error.strerror or error} ({target.parent}); name a file in a folder that exists and "
            "can be written"
        )
        raise ArgumentError("trace", problem, target) from None


def run_by_mpi(request: MpiRequest, reporter: StatusReporter, *, verbose: bool) -> NoReturn:
    """Becomes mpirun, whose exit code is the job's.

    Raises UsageError for what cannot be under MPI, LaunchError when mpirun cannot be started.
    """
    setting = setting_environ(request.values.core_setting())
    command, environ = mpi_start(request.job, {**request.variables, **setting})
    if verbose:
        reporter.info(" ".join(command))
    try:
        os.execve(command[0], command, environ)
    except OSError as error:
        raise LaunchError(f"cannot start {command[0]}: {error.strerror}") from None
