"""The folder of a run: its files and its identity."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hvdtune.core.config.environment import own_environ
from hvdtune.core.job.interrupt import Stopped
from hvdtune.errors import ArgumentError, HvdtuneError, UsageError

if TYPE_CHECKING:
    from typing_extensions import Self

RUNS: Final = Path("runs")
# The place of a shared study, which storage.json contains.
_PLACE: Final = ("storage", "name")
# A value may be a secret: this many digits show a change, but do not reveal the value.
_VALUE_DIGITS: Final = 4
# They affect the start and the messages of a job, not the pairs of a study.
_NOT_MEASURED: Final = frozenset(
    {
        "HOROVOD_STALL_CHECK_DISABLE",
        "HVDTUNE_ADDRESS",
        "HVDTUNE_CONTROLLER",
        "HVDTUNE_HANG_WARNING_S",
        "HVDTUNE_HEARTBEAT_TIMEOUT_S",
        "HVDTUNE_START_TIMEOUT_S",
        "HVDTUNE_TIMELINE_STEPS",
    }
)


@dataclass(frozen=True)
class RunIdentity:
    """The identity of the runs in one folder.

    Attributes:
        command: the words of the command.
        hosts: the host of each rank.
        study: the search or comparison and its measurement; None without a study.
        variables: digests of the ranks' variables by name; only studies are compared by them.
    """

    command: tuple[str, ...]
    hosts: tuple[str, ...]
    study: Mapping[str, Any] | None = None
    variables: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the document in run.json."""
        return {
            "v": 1,
            "command": list(self.command),
            "hosts": list(self.hosts),
            "study": self.study,
            "variables": dict(self.variables),
        }


def given_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return digests of the variables that ranks do not inherit and that may affect pairs."""
    inherited = own_environ()
    return {
        name: hashlib.sha256(value.encode(errors="surrogateescape")).hexdigest()[:_VALUE_DIGITS]
        for name, value in sorted(environ.items())
        if name not in _NOT_MEASURED and inherited.get(name) != value
    }


class RunFolder:
    """An open run folder, held by a lock until it is closed.

    RUN/run.json contains the identity, RUN/ranks/launch-K/ the recordings, RUN/output/launch-K.log
    the ranks' output, RUN/trace.json the merged trace. RUN/failure.txt contains the reason if the
    latest run ended before it was complete.
    """

    def __init__(self, path: Path, identity: RunIdentity) -> None:
        """Make or continue the run at `path`.

        Raises UsageError if a file or another command's run is there, HvdtuneError if it is in use
        or cannot be written.
        """
        self.path = path
        try:
            path.mkdir(parents=True, exist_ok=True)
            # The command's words may be private; the rest of the folder can be shared.
            self._lock = os.open(path / "run.json", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            is_file = isinstance(error, FileExistsError | NotADirectoryError)
            kind = UsageError if is_file else HvdtuneError
            raise kind(f"cannot use the folder {path}: {error.strerror}") from None
        try:
            self._claim(identity)
            self._failure.unlink(missing_ok=True)
        except BaseException:
            os.close(self._lock)
            raise

    def _claim(self, identity: RunIdentity) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise HvdtuneError(f"another hvdtune is running in {self.path}") from None
        there = os.pread(self._lock, 1 << 20, 0)
        stored = _parse(there)
        first_study = identity.study is not None and stored.get("study") is None
        if there and not _same_job(stored, identity):
            raise ArgumentError(
                "run_dir",
                "the folder contains the run of a different command or with different settings; "
                "choose another folder",
                self.path,
            )
        if there and not first_study and (names := _differing(stored, identity)):
            raise ArgumentError(
                "run_dir",
                "the study in the folder was measured with other values of the variables "
                f"{', '.join(names)}; choose another folder",
                self.path,
            )
        if not there or first_study:
            os.pwrite(self._lock, json.dumps(identity.to_json()).encode() + b"\n", 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, HvdtuneError | Stopped):
            self.keep_failure(str(error))
        os.close(self._lock)

    def keep_failure(self, reason: str) -> None:
        """Keep the reason of the run's end for `hvdtune study show`."""
        # The reason is reported in any case, even if the disk is full.
        with contextlib.suppress(OSError):
            self._failure.write_text(reason, encoding="utf-8")

    @property
    def _failure(self) -> Path:
        return self.path / "failure.txt"

    @property
    def trace(self) -> Path:
        return self.path / "trace.json"

    def ranks(self, launch: int) -> Path:
        """Return the folder of a launch's recordings; make it if necessary."""
        from hvdtune.tuner.measure.trace_files import launch_folder

        folder = launch_folder(self.path, launch)
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def log(self, launch: int) -> Path:
        """Return the file of a launch's output; make its folder if necessary."""
        folder = self.path / "output"
        folder.mkdir(exist_ok=True)
        return folder / f"launch-{launch}.log"

    def next_launch(self) -> int:
        """Return the number of the next launch; the first is 0."""
        numbers = [
            int(path.stem.removeprefix("launch-"))
            for path in self.path.glob("output/launch-*.log")
            if path.stem.removeprefix("launch-").isdigit()
        ]
        return max(numbers, default=-1) + 1


def contents(run_dir: Path) -> list[tuple[str, str]]:
    """Return the files of a run for the user: (path, meaning)."""
    meanings = {
        "report.md": "report",
        "profile.yaml": "the chosen setting, for --profile",
        "verdict.json": "verdict",
        "study.db": "study (Optuna)",
        "storage.json": "place of the shared study",
        "pairs.jsonl": "every measured pair",
        "artifacts": "timelines of trials",
        "live": "first part of the study, in a live run",
        "trace.json": "merged trace, for `hvdtune timeline view`",
        "journal.json": "state of the elastic job, for --resume",
        "membership.json": "members of the elastic job over time, for `hvdtune dashboard`",
        "output": "output of the ranks",
        "ranks": "recording of each rank",
    }
    return [
        (str(run_dir / name), meaning)
        for name, meaning in meanings.items()
        if (run_dir / name).exists()
    ]


def latest_unfinished(identity: RunIdentity, parent: Path = RUNS) -> Path | None:
    """Return the newest run with this identity and without a verdict, None if all are finished.

    Runs of other users are skipped: only these users can read run.json.
    """
    candidates = sorted(parent.glob("*/run.json"), key=lambda path: path.stat().st_mtime_ns)
    for file in reversed(candidates):
        if (file.parent / "verdict.json").exists():
            continue
        try:
            text = file.read_bytes()
        except PermissionError:
            continue
        # Older runs do not contain their variables.
        wanted = identity.to_json()
        stored = {"variables": wanted["variables"], **_parse(text)}
        if stored == wanted and not _locked(file):
            return file.parent
    return None


def fresh_path(title: str, parent: Path = RUNS) -> Path:
    """Return an unused path runs/TITLE-TIME."""
    name = f"{Path(title).stem}-{time.strftime('%Y%m%d-%H%M%S')}"
    path = parent / name
    number = 1
    while path.exists():
        number += 1
        path = parent / f"{name}-{number}"
    return path


def _locked(file: Path) -> bool:
    with file.open("rb") as opened:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


def _same_job(stored: dict[str, Any], identity: RunIdentity) -> bool:
    wanted = identity.to_json()
    if any(stored.get(name) != wanted[name] for name in ("command", "hosts")):
        return False
    one, other = _measured(stored), _measured(wanted)
    # A run without a study leaves no pairs, but a comparison has a folder of its own.
    if stored.get("study") is None or identity.study is None:
        return one.get("compare") == other.get("compare")
    return one == other


def _differing(stored: dict[str, Any], identity: RunIdentity) -> list[str]:
    """Return the variables whose values have changed since the study; older runs have none."""
    there = stored.get("variables")
    if identity.study is None or not isinstance(there, dict):
        return []
    here = identity.variables
    return sorted(name for name in {*there, *here} if there.get(name) != here.get(name))


def _measured(run: dict[str, Any]) -> dict[str, Any]:
    """Return the unusual parts of the study that pairs depend on; older runs lack some."""
    study = {"objectives": ["step_time"], **(run.get("study") or {})}
    return {
        name: value
        for name, value in study.items()
        if value not in (None, [], ["step_time"]) and name not in _PLACE
    }


def _parse(text: bytes) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}
