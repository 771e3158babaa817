"""What a run folder keeps of an elastic job: its output, who was in it when, and its journal."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from hvdtune.errors import HvdtuneError
from hvdtune.launcher.elastic import history, journal
from hvdtune.launcher.output import Writer, file_writer
from hvdtune.own_files import replacement
from hvdtune.workflows.run_folder import RunFolder, RunIdentity, given_variables

if TYPE_CHECKING:
    from pathlib import Path

    from hvdtune.launcher.elastic.job import ElasticJob
    from hvdtune.launcher.elastic.journal import Journal
    from hvdtune.workflows.requests import ElasticRequest


class JobRecords:
    """The open run folder of a job. `former` is the journal of the one that is taken over."""

    def __init__(
        self,
        request: ElasticRequest,
        path: Path,
        study: Mapping[str, Any] | None,
        warn: Callable[[str], None],
        stack: ExitStack,
    ) -> None:
        """Opens it until the stack is closed; with `request.resume` returns when no process of the
        former job runs.

        Raises UsageError where there is no job to be taken over, and as RunFolder does.
        """
        file = path / journal.FILE_NAME
        if request.resume:
            journal.read_journal(file)  # before anything is made
        variables = {} if study is None else given_variables(request.variables)
        self.identity = RunIdentity(request.words, (), study, variables)
        self.folder = stack.enter_context(RunFolder(path, self.identity))
        self._stack, self._warn, self._has_warned = stack, warn, False
        self.former: Journal | None = None
        if request.resume:
            self.former = journal.read_journal(file)
            journal.await_end(self.former.processes)

    def ranks(self) -> Path:
        """Where the ranks of the next launch record, before its `log_writer`."""
        return self.folder.ranks(self.folder.next_launch())

    def log_writer(self) -> Writer:
        """Writes the ranks' output into the folder."""
        path = self.folder.log(self.folder.next_launch())
        return file_writer(self._stack.enter_context(path.open("ab", buffering=0)))

    def keep_history(self, job: ElasticJob) -> None:
        """Raises HvdtuneError where it cannot be written."""
        path = self.folder.path / history.FILE_NAME
        try:
            with replacement(path) as part:
                part.write_text(json.dumps(job.document()), encoding="utf-8")
        except OSError as error:
            raise HvdtuneError(f"cannot write {path}: {error.strerror}") from None

    def keep_journal(self, job: ElasticJob) -> None:
        """Warns once where it cannot be written: the job needs it only if this launcher dies."""
        path = self.folder.path / journal.FILE_NAME
        try:
            journal.write_journal(path, job.journal())
        except OSError as error:
            if not self._has_warned:
                self._has_warned = True
                self._warn(f"cannot write {path}, which --resume needs: {error.strerror}")

    def keep(self, job: ElasticJob) -> None:
        """As the job ends."""
        self.keep_journal(job)
        self.keep_history(job)
