"""The starter of an elastic job, and the job's files in the run folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from hvdtune.errors import HvdtuneError
from hvdtune.launcher.elastic import history, journal
from hvdtune.launcher.elastic.chaos import Chaos
from hvdtune.launcher.elastic.discovery import Discovery, DiscoveryScript, FixedHosts
from hvdtune.launcher.elastic.workers import ElasticWorkers
from hvdtune.launcher.hosts import Host, checked_ssh_args, remote_hosts, this_host
from hvdtune.launcher.job import Job
from hvdtune.launcher.jobs import rank_options
from hvdtune.launcher.plan import plan_slots
from hvdtune.own_files import replacement

if TYPE_CHECKING:
    from hvdtune.core.config.knobs import Setting
    from hvdtune.launcher.output import Writer
    from hvdtune.workflows.requests import JobRequest, StatusReporter
    from hvdtune.workflows.run_folder import RunFolder
    from hvdtune.workflows.session import LaunchFiles


class ElasticStarter:
    """Starts an elastic job and keeps its journal and history in the run folder.

    Attributes:
        discovery: finds the hosts; the caller closes it.
    """

    def __init__(
        self,
        job: JobRequest,
        folder: RunFolder | None,
        say: Callable[[str], None],
        reporter: StatusReporter,
    ) -> None:
        """With `resume` return when no process of the former job runs.

        Raises UsageError if there is no job to resume.
        """
        request = job.elastic
        assert request is not None
        self._job, self._request, self._say, self._reporter = job, request, say, reporter
        self._path = None if folder is None else folder.path
        self._has_warned = False
        self._former: journal.Journal | None = None
        if request.resume and self._path is not None:
            self._former = journal.read_journal(self._path / journal.FILE_NAME)
            journal.await_end(self._former.processes)
        self.discovery: Discovery = FixedHosts(request.hosts)
        if request.script is not None:
            self.discovery = DiscoveryScript(request.script, request.slots_per_host, say)

    @contextmanager
    def start(self, setting: Setting, files: LaunchFiles, writers: list[Writer]) -> Iterator[Job]:
        """Start the job; report its account when it has ended."""
        workers = self._make_workers(setting, files, writers)
        with Job(workers, self._job.options.terminate_grace_s) as job:
            try:
                yield job
            finally:
                self._keep_journal(workers)
                self._keep_history(workers)
        for sentence in workers.account.sentences():
            self._reporter.info(sentence)
        if workers.why_no_chaos:
            self._reporter.warning(workers.why_no_chaos)

    def _make_workers(
        self, setting: Setting, files: LaunchFiles, writers: list[Writer]
    ) -> ElasticWorkers:
        request, discovery, given = self._request, self.discovery, self._job.options
        hosts = tuple(Host(name, slots) for name, slots in discovery.found.items())
        # Without a host yet, the job listens at the address for this host.
        hosts = hosts or this_host(1)
        options = rank_options(
            plan_slots(hosts, sum(host.slots for host in hosts)),
            given.environ,
            given.timeline_max_mb,
            given.timeline_when_full,
            given.timeline_steps,
        )
        # A host that is discovered later may be another machine.
        elsewhere = remote_hosts(discovery.found) if discovery.is_fixed else ("a discovered host",)
        return ElasticWorkers(
            replace(self._job.plan, ssh=checked_ssh_args(elsewhere, *request.login)),
            setting,
            replace(options, timeline=files.timeline("worker-%r.hvt")),
            request.limits,
            discovery,
            self._say,
            writers=writers,
            chaos=None if request.chaos is None else Chaos(request.chaos),
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
