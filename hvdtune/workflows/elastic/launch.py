"""One launch of an elastic job."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hvdtune.core.job.interrupt import Stopped, stop_signals
from hvdtune.launcher.elastic.chaos import Chaos
from hvdtune.launcher.elastic.discovery import Discovery, DiscoveryScript, FixedHosts
from hvdtune.launcher.elastic.job import ElasticJob, ElasticPlan
from hvdtune.launcher.elastic.membership import ElasticLimits
from hvdtune.launcher.hosts import Host, checked_ssh_args, remote_hosts, this_host
from hvdtune.launcher.jobs import rank_options
from hvdtune.launcher.output import Writer
from hvdtune.launcher.plan import plan_slots
from hvdtune.workflows.elastic.records import JobRecords
from hvdtune.workflows.launch import finish_traces, raw_folder_beside
from hvdtune.workflows.launches import output_writers
from hvdtune.workflows.requests import (
    ElasticRequest,
    OutputRequest,
    StatusReporter,
    TraceRequest,
    report_exit,
)
from hvdtune.workflows.results import LaunchResult

if TYPE_CHECKING:
    from hvdtune.core.config.knobs import Setting


def launch_elastic(
    request: ElasticRequest, trace: TraceRequest, output: OutputRequest, reporter: StatusReporter
) -> LaunchResult:
    """Runs the job to its end, whatever ranks come and go meanwhile, and merges its trace where one
    is asked for.

    Raises UsageError and LaunchError as a job of fixed size does, and for a discovery script that
    fails at once.
    """
    with ExitStack() as stack:
        writers = output_writers(output, reporter, None, stack)
        records, raw, target = None, None, trace.path
        if output.folder is not None:
            records = JobRecords(request, output.folder, None, reporter.warning, stack)
            raw, target = records.ranks(), target or records.folder.trace
            writers.append(records.log_writer())
        elif target is not None:
            raw = raw_folder_beside(target)
        discovery = discovery_of(request, reporter.info)
        try:
            with stop_signals():
                setting = request.values.core_setting()
                job = make_job(request, setting, discovery, writers, reporter.info, records, raw)
                with job:
                    try:
                        report = job.wait()
                    finally:
                        if records is not None:
                            records.keep(job)
                    remark = job.write_error
                    account, untried = job.account.sentences(), job.why_no_chaos
        except Stopped as stop:
            result = LaunchResult(stop.exit_code, str(stop))
        else:
            if remark:
                reporter.warning(remark)
            for sentence in account:
                reporter.info(sentence)
            if untried:
                reporter.warning(untried)
            result = LaunchResult(report.returncode, report.reason, report.tail)
        finally:
            discovery.close()
        report_exit(reporter, result.exit_code, result.reason)
        traces: tuple[Path, ...] = ()
        if raw and target:
            traces = finish_traces(raw, target, trace, output, reporter)
        return replace(result, run_dir=output.folder, traces=traces)


def make_job(
    request: ElasticRequest,
    setting: Setting,
    discovery: Discovery,
    writers: list[Writer],
    say: Callable[[str], None],
    records: JobRecords | None,
    raw: Path | None = None,
) -> ElasticJob:
    """The job, which has started nothing yet; its ranks begin each generation with the setting, and
    record in `raw`."""
    hosts = tuple(Host(name, slots) for name, slots in discovery.found.items())
    remote = remote_hosts(host.name for host in hosts)
    # Without a host yet, the job listens where this one's would.
    hosts = hosts or this_host(1)
    slots = plan_slots(hosts, sum(host.slots for host in hosts))
    options = rank_options(
        slots,
        request.variables,
        request.timeline_max_mb,
        request.timeline_when_full,
        request.timeline_steps,
    )
    if raw is not None:
        options = replace(options, timeline=str(raw / "worker-%r.hvt"))
    limits = ElasticLimits(
        min_ranks=request.min_ranks,
        max_ranks=request.max_ranks or sys.maxsize,
        elastic_timeout_s=request.elastic_timeout_s,
        start_timeout_s=options.start_timeout_s,
        heartbeat_timeout_s=options.heartbeat_timeout_s,
        reset_limit=request.reset_limit,
        cooldown=request.cooldown,
        hosts_are_fixed=discovery.is_fixed,
    )
    # A host that is discovered later may be another machine.
    elsewhere = remote if discovery.is_fixed else ("a discovered host",)
    ssh = checked_ssh_args(elsewhere, request.ssh_port, request.ssh_identity_file)
    chaos = None if request.chaos is None else Chaos(request.chaos)
    plan = ElasticPlan(request.command, request.words[0], discovery, limits, ssh, chaos)
    if records is None:
        return ElasticJob(plan, setting, options, writers, say)
    formed, changed = records.keep_history, records.keep_journal
    return ElasticJob(plan, setting, options, writers, say, formed, changed, records.former)


def discovery_of(request: ElasticRequest, say: Callable[[str], None]) -> Discovery:
    """Looks for the hosts of the job; to be closed."""
    if request.discovery_script is None:
        return FixedHosts(request.hosts)
    return DiscoveryScript(request.discovery_script, request.slots_per_host, say)
