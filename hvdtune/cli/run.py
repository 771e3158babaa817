"""`hvdtune run`: one job, or a study of many."""

from __future__ import annotations

import math
import shutil
import tempfile
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Final

from hvdtune.cli.folder import RunFolder, RunIdentity
from hvdtune.cli.messages import complain, tell, warn
from hvdtune.cli.options import RunOptions
from hvdtune.cli.trace import write_traces
from hvdtune.core.config import launch_defaults
from hvdtune.core.knobs import Setting, Value, parse_assignments, validate
from hvdtune.errors import UsageError
from hvdtune.launch.hosts import Host, parse_hosts, read_hostfile, require_local
from hvdtune.launch.interrupt import Stopped, stop_signals
from hvdtune.launch.output import file_writer, terminal_writer
from hvdtune.launch.plan import build_command, plan_slots
from hvdtune.launch.run import Job, JobOptions, JobPlan

_MIB: Final = 1 << 20


def run(options: RunOptions) -> int:
    """Runs the job or the study that the options ask for; returns the exit code."""
    plan = plan_job(options)
    setting = chosen_setting(options)
    if options.timeline_filename is not None and options.timeline_filename.is_dir():
        raise UsageError(f"--timeline-filename {options.timeline_filename} is a directory")
    if options.trials is not None:
        from hvdtune.cli.tune import tune

        return tune(options, plan, job_options(options), setting)
    for name, value in (("--time-budget", options.time_budget), ("--knobs", options.knobs)):
        if value is not None:
            raise UsageError(f"{name} needs --trials")
    return run_once(options, plan, setting)


def plan_job(options: RunOptions) -> JobPlan:
    """The command and the places of its ranks. Raises UsageError or LaunchError."""
    command = build_command(options.command)
    hosts = _hosts(options)
    processes = options.num_proc
    if hosts is None:
        processes = processes or 1
        hosts = (Host("localhost", processes),)
    require_local(hosts)
    slots = plan_slots(hosts, processes or sum(host.slots for host in hosts))
    return JobPlan(command, slots, options.command[0])


def _whole(value: float) -> float:
    return round(value) if math.isfinite(value) else value  # which validate() refuses


def chosen_setting(options: RunOptions) -> dict[str, Value]:
    """The knobs named by --profile, then by their own options, then by --fix."""
    setting: dict[str, Value] = {}
    if options.profile is not None:
        from hvdtune.tuner.profile import read_profile

        setting |= read_profile(options.profile).setting
    threshold = options.fusion_threshold_mb
    named: dict[str, Value | None] = {
        "fusion_threshold_bytes": None if threshold is None else _whole(threshold * _MIB),
        "cycle_time_ms": options.cycle_time_ms,
        "cache_capacity": options.cache_capacity,
        "hierarchical_allreduce": options.hierarchical_allreduce,
    }
    setting |= {name: value for name, value in named.items() if value is not None}
    if options.fix:
        setting |= parse_assignments(options.fix)
    return validate(setting) if setting else setting


def job_options(options: RunOptions) -> JobOptions:
    """Command line first, then the environment, then the defaults."""
    defaults = launch_defaults()
    return JobOptions(
        start_timeout_s=options.start_timeout or defaults.start_timeout_s,
        heartbeat_timeout_s=options.heartbeat_timeout or defaults.heartbeat_timeout_s,
        transport=options.transport or defaults.transport,
        address=defaults.address or JobOptions.address,
        timeline_max_mb=options.timeline_max_mb or 0.0,
    )


def run_once(options: RunOptions, plan: JobPlan, setting: Setting) -> int:
    """One launch of the job, with its output on the terminal; returns the exit code."""
    with ExitStack() as stack:
        writers = [terminal_writer()]
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
                    plan, setting, replace(job_options(options), timeline=timeline), writers=writers
                ) as job,
            ):
                if options.verbose:
                    _tell_ranks(job, plan)
                report = job.wait()
            code, reason = report.returncode, report.reason
            if job.write_error:
                warn(job.write_error)
        except Stopped as stop:
            code, reason = stop.exit_code, str(stop)
        if reason:
            complain(reason)
        if raw and target:
            for trace in write_traces(raw, target):
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


def _hosts(options: RunOptions) -> tuple[Host, ...] | None:
    if options.hosts is not None and options.hostfile is not None:
        raise UsageError("give -H or --hostfile, not both")
    if options.hostfile is not None:
        return read_hostfile(options.hostfile)
    return None if options.hosts is None else parse_hosts(options.hosts)
