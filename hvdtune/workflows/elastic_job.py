"""How an elastic job is started, and the files that its run folder keeps of it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from hvdtune.errors import HvdtuneError
from hvdtune.launcher.elastic import history, journal
from hvdtune.launcher.elastic.chaos import Chaos
from hvdtune.launcher.elastic.discovery import Discovery, DiscoveryScript, FixedHosts
from hvdtune.launcher.elastic.membership import ElasticLimits
from hvdtune.launcher.elastic.workers import ElasticWorkers
from hvdtune.launcher.hosts import Host, checked_ssh_args, remote_hosts, this_host
from hvdtune.launcher.job import Job
from hvdtune.launcher.jobs import rank_options
from hvdtune.launcher.plan import plan_slots
from hvdtune.launcher.ranks import JobOptions, JobPlan
from hvdtune.own_files import replacement

if TYPE_CHECKING:
    from hvdtune.core.config.knobs import Setting
    from hvdtune.launcher.output import Writer
    from hvdtune.workflows.requests import ElasticRequest, StatusReporter
    from hvdtune.workflows.run_folder import RunFolder
    from hvdtune.workflows.session import LaunchFiles


class ElasticStarter:
    """Starts the job of an ElasticRequest and keeps its journal and history in the run folder.

    Attributes:
        discovery: finds the hosts; the caller closes it.
    """

    def __init__(
        self,
        request: ElasticRequest,
        folder: RunFolder | None,
        say: Callable[[str], None],
        reporter: StatusReporter,
    ) -> None:
        """With `request.resume` return when no process of the former job runs.

        Raises UsageError if there is no job to resume.
        """
        self._request, self._say, self._reporter = request, say, reporter
        self._path = None if folder is None else folder.path
        self._has_warned = False
        self._former: journal.Journal | None = None
        if request.resume and self._path is not None:
            self._former = journal.read_journal(self._path / journal.FILE_NAME)
            journal.await_end(self._former.processes)
        self.discovery: Discovery = FixedHosts(request.hosts)
        if request.discovery_script is not None:
            script, slots = request.discovery_script, request.slots_per_host
            self.discovery = DiscoveryScript(script, slots, say)

    @contextmanager
    def start(self, setting: Setting, files: LaunchFiles, writers: list[Writer]) -> Iterator[Job]:
        """Start the job; report its account when it has ended."""
        options = self._options(files)
        workers = self._make_workers(setting, options, writers)
        with Job(workers, options.terminate_grace_s) as job:
            try:
                yield job
            finally:
                self._keep_journal(workers)
                self._keep_history(workers)
        for sentence in workers.account.sentences():
            self._reporter.info(sentence)
        if workers.why_no_chaos:
            self._reporter.warning(workers.why_no_chaos)

    def _options(self, files: LaunchFiles) -> JobOptions:
        request, discovery = self._request, self.discovery
        hosts = tuple(Host(name, slots) for name, slots in discovery.found.items())
        # Without a host yet, the job listens at the address for this host.
        hosts = hosts or this_host(1)
        options = rank_options(
            plan_slots(hosts, sum(host.slots for host in hosts)),
            request.variables,
            request.timeline_max_mb,
            request.timeline_when_full,
            request.timeline_steps,
        )
        return replace(options, timeline=files.timeline("worker-%r.hvt"))

    def _make_workers(
        self, setting: Setting, options: JobOptions, writers: list[Writer]
    ) -> ElasticWorkers:
        request, discovery = self._request, self.discovery
        limits = ElasticLimits(
            min_ranks=request.min_ranks,
            max_ranks=request.max_ranks or sys.maxsize,
            elastic_timeout_s=request.elastic_timeout_s,
            reset_limit=request.reset_limit,
            cooldown=request.cooldown,
        )
        # A host that is discovered later may be another machine.
        remote = remote_hosts(discovery.found)
        elsewhere = remote if discovery.is_fixed else ("a discovered host",)
        ssh = checked_ssh_args(elsewhere, request.ssh_port, request.ssh_identity_file)
        chaos = None if request.chaos is None else Chaos(request.chaos)
        plan = JobPlan(request.command, (), request.words[0], ssh=ssh)
        return ElasticWorkers(
            plan,
            setting,
            options,
            limits,
            discovery,
            self._say,
            writers=writers,
            chaos=chaos,
            former=self._former,
            formed=self._keep_history,
            changed=self._keep_journal,
        )

    def _keep_history(self, workers: ElasticWorkers) -> None:
        """Raises HvdtuneError if it cannot be written."""
        if self._path is None:
            return
        path = self._path / history.FILE_NAME
        try:
            with replacement(path) as part:
                part.write_text(json.dumps(workers.document()), encoding="utf-8")
        except OSError as error:
            raise HvdtuneError(f"cannot write {path}: {error.strerror}") from None

    def _keep_journal(self, workers: ElasticWorkers) -> None:
        """Warns once if it cannot be written: the job needs it only if this launcher dies."""
        if self._path is None:
            return
        path = self._path / journal.FILE_NAME
        try:
            journal.write_journal(path, workers.journal())
        except OSError as error:
            if not self._has_warned:
                self._has_warned = True
                text = f"cannot write {path}, which --resume needs: {error.strerror}"
                self._reporter.warning(text)
