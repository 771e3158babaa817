"""How another process of the same user reaches a running job: through its launcher.

A launcher listens on a socket without a file, `@hvdtune-job-PID-N`, of its own machine only. Before
a byte is read, each end asks the kernel who is at the other: the same user (or root) or nobody.
Messages are JSON, one a packet. The caller's hanging up ends what it has asked for.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import selectors
import socket
import struct
import threading
from array import array
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Final, Literal, Protocol, Self, TypeVar

import msgspec

from hvdtune.errors import HvdtuneError, UsageError

_PREFIX: Final = "hvdtune-job-"
_MAX_BYTES: Final = 65536
_CREDENTIALS: Final = struct.Struct("3i")  # struct ucred: pid, uid, gid
_ANSWER_S: Final = 5.0
_MOST_CALLERS: Final = 16
_KEPT_NUMBERS: Final = 200_000  # of steps, one for each rank
_MOST_NUMBERS: Final = 4_000  # in a message, of up to ten digits each
_numbers: Final = itertools.count()


class JobState(msgspec.Struct, frozen=True):
    """What a launcher says of its job.

    `remote` of the `ranks` are on other hosts; `timeline` is the raw trace file with `%r` for the
    rank, "" when the job was not asked to record; `steps` have ended on all ranks. `error` says
    why nothing could be done, "" if it could.
    """

    title: str
    ranks: int
    remote: int = 0
    timeline: str = ""
    steps: int = 0
    error: str = ""


class JobSteps(msgspec.Struct, frozen=True):
    """Steps that have ended on all ranks, on whatever host: numbers `first`, `first + 1` ...

    `durations_us` has a row per step with an entry per rank; no row: there is nothing new. `job`
    is greater for each job that the ranks of a launch form. `error` as of JobState.
    """

    job: int = 0
    first: int = 0
    durations_us: list[list[int]] = []
    error: str = ""


_Answer = TypeVar("_Answer", JobState, JobSteps)


# What the core and sums of a few such numbers can hold.
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**62)]


class _Request(msgspec.Struct):
    ask: Literal["state", "record", "stop", "steps"]
    path: str = ""
    max_bytes: _Count = 0
    job: _Count = 0
    since: _Count = 0


class _Recordable(Protocol):
    def record(self, path: str, max_bytes: int = 0) -> None: ...


class ControlTarget(Protocol):
    """What callers reach: `launch.run.Job` and what is like it."""

    @property
    def state(self) -> JobState: ...
    @property
    def channel(self) -> _Recordable: ...
    def steps_since(self, job: int, first: int) -> JobSteps: ...


class StepLog:
    """The latest steps of the latest job of a launch. All but `_lock` is guarded by it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rows: deque[array[int]] = deque()
        self._job = self._first = 0

    def begin_job(self) -> None:
        """Forgets the steps of the job before."""
        with self._lock:
            self._job += 1
            self._rows.clear()
            self._first = 0

    def add(self, step: int, durations_ns: Sequence[int]) -> None:
        """A step has ended. One that does not follow the one before begins anew."""
        with self._lock:
            if step != self._first + len(self._rows):
                self._rows.clear()
                self._first = step
            self._rows.append(array("Q", [duration // 1000 for duration in durations_ns]))
            while len(self._rows) > max(_KEPT_NUMBERS // max(len(durations_ns), 1), 1):
                self._rows.popleft()
                self._first += 1

    def since(self, job: int, first: int) -> JobSteps:
        """From this number on, or all of a job that is not this one: as many as fit into one
        message; older ones may be gone."""
        with self._lock:
            begin = max(first, self._first) if job == self._job else self._first
            ranks = len(self._rows[-1]) if self._rows else 1
            most = max(_MOST_NUMBERS // max(ranks, 1), 1)
            rows = itertools.islice(self._rows, begin - self._first, begin - self._first + most)
            return JobSteps(self._job, begin, [list(row) for row in rows])


def open_control(job: ControlTarget) -> Control | None:
    """Listens for callers until closed; None where that cannot be: a job runs without it, too."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
    try:
        listener.bind(f"\0{_PREFIX}{os.getpid()}-{next(_numbers)}")
        listener.listen(_MOST_CALLERS)
    except OSError:
        listener.close()
        return None
    return Control(job, listener)


class Control:
    """Answers callers on a thread of its own."""

    def __init__(self, job: ControlTarget, listener: socket.socket) -> None:
        self._job, self._listener = job, listener
        self._wake, self._sleeper = socket.socketpair()
        self._callers: set[socket.socket] = set()
        self._recorder: socket.socket | None = None
        self._thread = threading.Thread(target=self._run, name="hvdtune-control", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Hangs up on all callers."""
        self._wake.close()
        self._thread.join()

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector, self._sleeper, self._listener:
            selector.register(self._sleeper, selectors.EVENT_READ)
            selector.register(self._listener, selectors.EVENT_READ)
            open_ = True
            while open_:
                for key, _ in selector.select():
                    if key.fileobj is self._sleeper:
                        open_ = False
                    elif key.fileobj is self._listener:
                        self._accept(selector)
                    elif isinstance(key.fileobj, socket.socket):
                        self._serve(selector, key.fileobj)
            for caller in self._callers:
                caller.close()

    def _accept(self, selector: selectors.BaseSelector) -> None:
        try:
            caller, _ = self._listener.accept()
        except OSError:
            return  # it has hung up before
        if _peer(caller)[1] not in (os.getuid(), 0) or len(self._callers) >= _MOST_CALLERS:
            caller.close()
            return
        caller.setblocking(False)
        self._callers.add(caller)
        selector.register(caller, selectors.EVENT_READ)

    def _serve(self, selector: selectors.BaseSelector, caller: socket.socket) -> None:
        with contextlib.suppress(OSError):  # as good as hung up
            data = caller.recv(_MAX_BYTES)
            if data:
                caller.send(msgspec.json.encode(self._answer(caller, data)))
                return
        selector.unregister(caller)
        self._callers.remove(caller)
        caller.close()
        if self._recorder is caller:
            self._end_recording()

    def _answer(self, caller: socket.socket, data: bytes) -> JobState | JobSteps:
        try:
            request = msgspec.json.decode(data, type=_Request)
        except msgspec.DecodeError as error:
            return self._refusal(f"no request: {error}")
        if request.ask == "steps":
            return self._job.steps_since(request.job, request.since)
        if request.ask == "record":
            if self._recorder is not None:
                return self._refusal("somebody else records this job now")
            self._recorder = caller
            self._job.channel.record(request.path, request.max_bytes)
        elif request.ask == "stop" and self._recorder is caller:
            self._end_recording()
        return self._job.state

    def _end_recording(self) -> None:
        self._recorder = None
        self._job.channel.record("")

    def _refusal(self, why: str) -> JobState:
        return msgspec.structs.replace(self._job.state, error=why)


class ControlClient:
    """A connection to a job's launcher. A context manager; leaving it closes the connection."""

    def __init__(self, connection: socket.socket, pid: int) -> None:
        self._connection = connection
        self.pid = pid

    def state(self) -> JobState:
        """The state as of now. Raises HvdtuneError when the launcher is gone."""
        return self._ask(_Request("state"), JobState)

    def record(self, path: str, max_bytes: int) -> JobState:
        """Makes all ranks record to `path` (`%r`: the rank), or on where they do already.

        Raises HvdtuneError when somebody else has asked for that, or the launcher is gone.
        """
        return self._ask(_Request("record", path, max_bytes), JobState)

    def stop(self) -> JobState:
        """Ends what `record` began."""
        return self._ask(_Request("stop"), JobState)

    def steps(self, job: int, since: int) -> JobSteps:
        """Steps of this job from this number on; those of another one from its first on."""
        return self._ask(_Request("steps", job=job, since=since), JobSteps)

    def _ask(self, request: _Request, kind: type[_Answer]) -> _Answer:
        try:
            self._connection.send(msgspec.json.encode(request))
            data = self._connection.recv(_MAX_BYTES)
        except OSError:
            self._connection.close()  # an answer that comes late would be taken for the next one's
            data = b""
        if not data:
            raise HvdtuneError(f"the job of process {self.pid} has ended")
        try:
            answer = msgspec.json.decode(data, type=kind)
        except msgspec.MsgspecError as error:
            raise HvdtuneError(
                f"process {self.pid} runs another version of hvdtune: {error}"
            ) from None
        if answer.error:
            raise HvdtuneError(f"process {self.pid}: {answer.error}")
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()


def connect(target: str) -> ControlClient:
    """Connects to the job that `target` names: a process id or a run folder.

    The process may be the launcher, a rank, or anything that one of them has started.

    Raises:
        UsageError: there is no such job.
    """
    if not target:
        raise UsageError("name a job: a process id or a run folder")
    if target.isdigit():
        for pid in _with_ancestors(int(target)):
            for name in _names(pid):
                if (client := _open_connection(name)) is not None:
                    return client
        raise UsageError(
            f"process {target} is not a job that `hvdtune run` started on this machine"
        )
    folder = Path(target)
    if not folder.is_dir():
        raise UsageError(f"{target} is neither a process id nor a run folder")
    for name in _names(None):
        client = _open_connection(name)
        if client is not None and folder.resolve() in Path(client.state().timeline).parents:
            return client
        if client is not None:
            client.__exit__(None, None, None)
    raise UsageError(f"no job runs in {target} now")


def _names(pid: int | None) -> Iterator[str]:
    """The names of the sockets of one launcher, or of all."""
    prefix = f"@{_PREFIX}" if pid is None else f"@{_PREFIX}{pid}-"
    lines = Path("/proc/net/unix").read_text().splitlines()
    # A listener's connections have its name, too.
    for name in dict.fromkeys(line.split()[-1] for line in lines):
        if name.startswith(prefix):
            yield name[1:]


def _open_connection(name: str) -> ControlClient | None:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.settimeout(_ANSWER_S)
    try:
        connection.connect(f"\0{name}")
        pid, uid, _ = _peer(connection)
    except OSError:  # it has ended since
        connection.close()
        return None
    if os.getuid() not in (uid, 0) or not name.startswith(f"{_PREFIX}{pid}-"):
        connection.close()
        return None
    return ControlClient(connection, pid)


def _peer(connection: socket.socket) -> tuple[int, int, int]:
    told = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, gid = _CREDENTIALS.unpack(told)
    return pid, uid, gid


def _with_ancestors(pid: int) -> Iterator[int]:
    import psutil

    try:
        process = psutil.Process(pid)
        yield from (pid, *(parent.pid for parent in process.parents()))
    except psutil.Error:
        raise UsageError(f"there is no process {pid}") from None
