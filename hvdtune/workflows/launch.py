"""`hvdtune run`: one job, or a study of many."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from hvdtune.cli.messages import complain, tell, warn
from hvdtune.cli.options import RunOptions
from hvdtune.cli.resolve import chosen_setting, controller, job_options, plan_job, remarks, settle
from hvdtune.core.config.environment import launch_defaults
from hvdtune.core.config.knobs import Setting
from hvdtune.core.job.interrupt import Stopped, stop_signals
from hvdtune.errors import UsageError
from hvdtune.launch.output import file_writer
from hvdtune.launch.run import Job, JobOptions, JobPlan
from hvdtune.workflows.output import output_writers
from hvdtune.workflows.rank_traces import Form, write_traces
from hvdtune.workflows.run_folder import RunFolder, RunIdentity


def run(options: RunOptions) -> int:
    """Runs the job or the study that the options ask for; returns the exit code."""
    options = settle(options)
    if options.profile is not None:
        from hvdtune.workflows.launches import adapter_of

        options = replace(options, adapter=adapter_of(options))
    if options.mode == "restart" or options.adapter is not None:
        from hvdtune.workflows.restart_plan import run_by_restarting

        return run_by_restarting(options)
    setting = chosen_setting(options)
    if options.timeline_filename is not None and options.timeline_filename.is_dir():
        raise UsageError(f"--timeline-filename {options.timeline_filename} is a directory")
    if options.timeline_filename is None and options.output_dir is None:
        for option, value in (
            ("--timeline-steps", options.timeline_steps),
            ("--timeline-when-full", options.timeline_when_full),
            ("--timeline-format", options.timeline_format),
        ):
            if value is not None:
                raise UsageError(f"{option} needs --timeline-filename or -o: nothing is recorded")
    for remark in remarks(options):
        tell(remark)
    if controller(options, launch_defaults()) == "mpi":
        from hvdtune.workflows.mpi import run_by_mpi

        run_by_mpi(options, setting)
    plan = plan_job(options)
    launch = job_options(options, plan.slots)
    if options.as_json and options.trials is None:
        raise UsageError("--json needs --trials")
    if options.profile is not None:
        from hvdtune.workflows.fingerprint import warn_of_differences

        with stop_signals():
            warn_of_differences(options.profile, plan, launch)
    if options.trials is not None:
        from hvdtune.workflows.live_study import tune

        return tune(options, plan, launch, setting)
    if options.autotune:
        from hvdtune.workflows.autotune import autotune

        return autotune(options, plan, launch, setting)
    return run_once(options, plan, launch, setting)


def run_once(options: RunOptions, plan: JobPlan, job_options: JobOptions, setting: Setting) -> int:
    """One launch of the job, with its output on the terminal; returns the exit code."""
    with ExitStack() as stack:
        writers = output_writers(options, len(plan.slots), stack)
        raw: Path | None = None
        target = options.timeline_filename
        if options.output_dir is not None:
            hosts = tuple(slot.host for slot in plan.slots)
            identity = RunIdentity(tuple(options.command), hosts)
            folder = stack.enter_context(RunFolder(options.output_dir, identity))
            launch = folder.next_launch()
            log = stack.enter_context(folder.log(launch).open("ab", buffering=0))
            writers.append(file_writer(log))
            raw, target = folder.ranks(launch), target or folder.trace
        elif target is not None:
            raw = _raw_folder_beside(target)
        timeline = str(raw / "rank-%r.hvt") if raw else ""
        try:
            with (
                stop_signals(),
                Job.start(
                    plan, setting, replace(job_options, timeline=timeline), writers=writers
                ) as job,
            ):
                if options.verbose:
                    _tell_ranks(job, plan)
                if raw is not None and options.profile is not None:
                    from hvdtune.workflows.fingerprint import warn_of_other_tensors

                    warn_of_other_tensors(options.profile, job, raw)
                report = job.wait()
            code, reason = report.returncode, report.reason
            if job.write_error:
                warn(job.write_error)
        except Stopped as stop:
            code, reason = stop.exit_code, str(stop)
        if reason:
            (complain if code else warn)(reason)
        if raw and target:
            for trace in write_traces(raw, target, Form.of(options)):
                tell(f"trace: {trace}")
        if raw and options.output_dir is None:
            shutil.rmtree(raw)
        return code


def _tell_ranks(job: Job, plan: JobPlan) -> None:
    for slot, pid in zip(plan.slots, job.pids, strict=True):
        tell(f"rank {slot.rank} on {slot.host}: pid {pid}")


def _raw_folder_beside(target: Path) -> Path:
    try:
        return Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.absolute().parent))
    except OSError as error:
        raise UsageError(f"--timeline-filename {target}: {error.strerror}") from None
