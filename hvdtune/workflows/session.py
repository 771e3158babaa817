"""One use of the launcher: its run folder, output, launches, recordings, signals and end."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from hvdtune import workbench
from hvdtune.core.job.interrupt import Stopped, stop_signals
from hvdtune.errors import ArgumentError, HvdtuneError
from hvdtune.launcher.job import ExitReport
from hvdtune.launcher.output import file_writer, stamped
from hvdtune.launcher.rank_files import rank_files, worker_files
from hvdtune.workflows.requests import MpiRequest, report_exit
from hvdtune.workflows.results import LaunchResult
from hvdtune.workflows.run_folder import (
    RunFolder,
    RunIdentity,
    fresh_path,
    given_variables,
    latest_unfinished,
)
from hvdtune.workflows.traces import write_traces

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

    from hvdtune.core.config.knobs import Setting
    from hvdtune.launcher.output import Writer
    from hvdtune.tuner.measure.progress import StudyProgress
    from hvdtune.workflows.requests import JobRequest, ProgressView, RunRequest, StatusReporter


@dataclass(frozen=True)
class LaunchFiles:
    """The files of one launch.

    Attributes:
        log: the ranks' output; None without a run folder.
        recordings: the folder of the ranks' recordings; None if they record nothing.
    """

    log: Path | None
    recordings: Path | None

    def timeline(self, name: str) -> str:
        """Return the path of the recordings called `name`, "" without recordings."""
        return "" if self.recordings is None else str(self.recordings / name)


class Starter(Protocol):
    """Starts the command under a setting. Leaving the context ends all its processes."""

    def start(
        self, setting: Setting, files: LaunchFiles, writers: list[Writer]
    ) -> AbstractContextManager[Any]: ...


class Session:
    """The run folder, the output, the launches and the recordings of one request.

    A context manager in which signals raise Stopped. Leaving it leaves no process. Thread rule: one
    thread.

    Attributes:
        starter: starts the launches.
        records: the ranks of each launch record a timeline.
        number: number of the latest launch, -1 before the first.
        latest: the latest launch, None before the first. It is kept after its end.
        recordings: the folder of the latest launch's recordings.
        progress: the view of a study, None without one.
    """

    starter: Starter

    def __init__(self, request: RunRequest, reporter: StatusReporter) -> None:
        assert not isinstance(request.job, MpiRequest), "mpirun starts this job"
        self.job: JobRequest = request.job
        self.output, self.reporter = request.output, reporter
        self.records = self.output.trace.path is not None or self.output.folder is not None
        self.number = -1
        self.latest: Any = None
        self.recordings: Path | None = None
        self.progress: ProgressView | None = None
        self.writers: list[Writer] = []
        self._folder: RunFolder | None = None
        self._has_made_folder = False
        self._stack, self._view, self._running = ExitStack(), ExitStack(), ExitStack()

    def __enter__(self) -> Self:
        self._stack.enter_context(stop_signals())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.push(self._running)
        try:
            if isinstance(error, Stopped) and self.progress is not None:
                self.close_view()
                named = f" with -o {self.folder.path}" * (self.job.elastic is not None)
                self.reporter.info(
                    f"the same command{named} continues this study in {self.folder.path}"
                )
        finally:
            self._stack.__exit__(kind, error, trace)
        if isinstance(error, HvdtuneError) and self._has_made_folder and not self._has_launched():
            shutil.rmtree(self.folder.path, ignore_errors=True)
        if self._folder is None and self.recordings is not None:
            with suppress(OSError):  # it contains recordings, or was removed after the merge
                self.recordings.rmdir()

    def _has_launched(self) -> bool:
        return any(self.folder.path.rglob("launch-*.log"))

    @property
    def folder(self) -> RunFolder:
        """The open run folder."""
        assert self._folder is not None, "the run folder is not open"
        return self._folder

    def open_folder(
        self, study: Mapping[str, Any] | None = None, *, continues: bool = False
    ) -> None:
        """Open the run folder that was asked for, or make one. A study's folder is reported.

        Args:
            study: the study's identity in run.json; None without a study.
            continues: use the folder of the latest unfinished run with this identity, if any.

        Raises:
            UsageError: the folder cannot be used, or contains no job to resume.
        """
        identity = run_identity(self.job, study)
        found = latest_unfinished(identity) if continues and self.output.folder is None else None
        if found is not None:
            self.reporter.info(
                f"continuing the unfinished study in {found}; -o FOLDER starts a new one"
            )
        path = self.output.folder or found or fresh_path(self.job.words[0])
        if self.job.elastic is not None and self.job.elastic.resume:
            from hvdtune.launcher.elastic import journal

            journal.read_journal(path / journal.FILE_NAME)  # fails before anything is written
        is_new = not path.exists()
        self._folder = self._stack.enter_context(RunFolder(path, identity))
        self._has_made_folder = is_new
        if study is not None:
            self.reporter.info(f"run folder {path}")

    def open_output(self, default: Setting | None = None) -> None:
        """Pass the ranks' output to the terminal and to the files of `--output-filename`.

        With `default`, the setting of a study's reference, the terminal shows the study's progress
        instead; the ranks' output appears there only if the request is verbose.

        Raises UsageError if the files cannot be written.
        """
        if default is None:
            write = self.reporter.write
            self.writers.append(stamped(write) if self.output.timestamps else write)
        else:
            self._stack.enter_context(self._view)
            self.progress = self._view.enter_context(self.reporter.progress(default))
            if self.output.verbose:
                self.writers.append(self.progress.write)
        if (folder := self.output.rank_files) is not None:
            is_fixed = self.job.elastic is None
            files = rank_files(folder, self.ranks) if is_fixed else worker_files(folder)
            self.writers.append(self._stack.enter_context(files))

    @property
    def ranks(self) -> int:
        """The number of ranks of a job of fixed size."""
        return len(self.job.plan.slots)

    def open_job(self, recording_mb: float = 0.0) -> None:
        """Choose how the job is started: hvdtune's own ranks, fixed or elastic.

        Args:
            recording_mb: limit of each recording unless the user set one; 0: no limit.
        """
        if self.job.elastic is not None:
            from hvdtune.workflows.elastic_job import ElasticStarter

            elastic = ElasticStarter(self.job, self._folder, self.say, self.reporter)
            self._stack.callback(elastic.discovery.close)
            self.starter = elastic
        else:
            from hvdtune.workflows.launches import FixedStarter

            self.starter = FixedStarter(self.job, recording_mb)

    def say(self, text: str) -> None:
        """Report a sentence while the job runs; a study shows it among the ranks' output."""
        if self.progress is None:
            self.reporter.info(text)
        else:
            self.progress.write("stderr", f"hvdtune: {text}\n".encode())

    def show(self, progress: StudyProgress) -> None:
        """Show the progress of the study."""
        assert self.progress is not None
        self.progress.show(progress)

    def close_view(self) -> None:
        """Give the terminal back."""
        self._view.close()

    def start(self, setting: Setting, number: int | None = None) -> Any:
        """Start a launch under a setting; the launch before it is ended.

        Args:
            number: number of the launch; None: the next in the run folder.
        """
        self.end_launch()
        writers, log = [*self.writers], None
        if self._folder is None:
            self.recordings = self._folder_for_now() if self.records else None
        else:
            self.number = self._folder.next_launch() if number is None else number
            self.recordings = self._folder.ranks(self.number) if self.records else None
            log = self._folder.log(self.number)
            file = self._running.enter_context(log.open("ab", buffering=0))
            writers.append(file_writer(file))
        launch = self.starter.start(setting, LaunchFiles(log, self.recordings), writers)
        self.latest = self._running.enter_context(launch)
        return self.latest

    def _folder_for_now(self) -> Path:
        """Make a folder for recordings next to the trace. Raises ArgumentError."""
        target = self.output.trace.path
        assert target is not None
        try:
            return Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.absolute().parent))
        except OSError as error:
            problem = (
                f"{error.strerror or error} ({target.parent}); choose a file in an existing folder "
                "that you can write to"
            )
            raise ArgumentError("trace", problem, target) from None

    def end_launch(self) -> None:
        """End the running launch, if any."""
        self._running.close()

    def wait_for_end(self, wait: Callable[[], Any]) -> ExitReport:
        """Wait for the end of the launch and report it; a signal ends the launch.

        Args:
            wait: returns how the launch ended.
        """
        try:
            try:
                report: ExitReport = wait()
            finally:
                self.end_launch()
        except Stopped as stop:
            report = ExitReport(stop.exit_code, str(stop), ())
        report_exit(self.reporter, report.returncode, report.reason)
        return report

    def finish(self, wait: Callable[[], Any]) -> LaunchResult:
        """Wait for the end of the job, report it and merge its recordings.

        Args:
            wait: starts the job and returns how it ended.

        Raises:
            HvdtuneError: the job could not be started, or its trace could not be written.
        """
        report = self.wait_for_end(wait)
        self._report_write_error()
        folder = None if self._folder is None else self._folder.path
        code, reason, tail = report.returncode, report.reason, tuple(report.tail)
        return LaunchResult(code, reason, tail, folder, self.merge())

    def measured(self, *, ended: bool = False) -> dict[str, Any]:
        """Merge the recordings of the latest launch; return the fields of a MeasuredRun.

        Args:
            ended: hvdtune ended the launch; the script did not.
        """
        self.end_launch()
        self._report_write_error()
        report = self.latest.wait()
        traces: tuple[Path, ...] = ()
        try:
            traces = self.merge(ended=ended)
        except HvdtuneError as error:
            self.reporter.warning(f"no merged trace: {error}")
        return {
            "run_dir": self.folder.path,
            "launch": self.number,
            "traces": traces,
            "tail": tuple(report.tail),
            "tail_rank": report.rank,
        }

    def merge(self, *, ended: bool = False) -> tuple[Path, ...]:
        """Merge the recordings of the latest launch and return the traces.

        Without the workbench the recordings are kept. Raises HvdtuneError if a trace cannot be
        written.
        """
        raw, trace = self.recordings, self.output.trace
        if raw is None:
            return ()
        target = trace.path or self.folder.trace
        traces: tuple[Path, ...] = ()
        if not workbench.missing():
            traces = write_traces(raw, target, trace, self.reporter, ended=ended)
            for written in traces:
                self.reporter.info(f"trace: {written}")
        elif any(raw.iterdir()):
            form = {"horovod": trace.horovod, "mark_cycles": trace.mark_cycles}
            self.reporter.info(workbench.keep_recordings(raw, target, **form))
        if self._folder is None and raw.exists():
            shutil.rmtree(raw)
        return traces

    def _report_write_error(self) -> None:
        if self.latest is not None and self.latest.write_error:
            self.reporter.warning(self.latest.write_error)


def run_identity(job: JobRequest, study: Mapping[str, Any] | None = None) -> RunIdentity:
    """Return the identity of the job's run folder.

    With a study it contains the variables that the ranks are given and would not have inherited.
    """
    hosts = tuple(slot.host for slot in job.plan.slots)
    given = {} if study is None else given_variables(job.options.environ)
    return RunIdentity(job.words, hosts, study, given)
