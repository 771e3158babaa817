"""How another process of the same user reaches a running job: through its launcher.

A launcher listens on a socket without a file, `@hvdtune-job-PID-RANDOM`, of its own machine only.
Nobody can foresee the name and take it first; what others have named like it is passed over. Before
a byte is read, each end asks the kernel who is at the other: the same user (or root) or nobody.
Messages are JSON, one a packet. The caller's hanging up ends what it has asked for.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import selectors
import socket
import struct
import threading
import time
from array import array
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal, Protocol, TypeVar

import msgspec

from hvdtune.errors import HvdtuneError, UsageError
from hvdtune.launcher.nodes.connections import next_connection, report

if TYPE_CHECKING:
    from typing_extensions import Self

_PREFIX: Final = "hvdtune-job-"
_MAX_BYTES: Final = 65536
_CREDENTIALS: Final = struct.Struct("3i")  # struct ucred: pid, uid, gid
_ANSWER_S: Final = 5.0
_AGAIN_S: Final = 0.02  # between two tries to reach a launcher that many want
_MOST_CALLERS: Final = 16
_KEPT_NUMBERS: Final = 200_000  # of steps, one for each rank
_MOST_NUMBERS: Final = 4_000  # in a message, of up to ten digits each


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
    """The job that callers reach, such as `launcher.ranks.Ranks`."""

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
        listener.bind(f"\0{_PREFIX}{os.getpid()}-{secrets.token_hex(8)}")
        listener.listen(_MOST_CALLERS)
        return Control(job, listener)
    except (OSError, RuntimeError):  # no descriptor, or no thread, can be had
        listener.close()
        return None


class Control:
    """Answers callers on a thread of its own."""

    def __init__(self, job: ControlTarget, listener: socket.socket) -> None:
        self._job, self._listener = job, listener
        self._callers: set[socket.socket] = set()
        self._recorder: socket.socket | None = None
        self._wake, self._sleeper = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name="hvdtune-control", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:
            self._wake.close()
            self._sleeper.close()
            raise

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
        accepted = next_connection(self._listener)
        if accepted is None:
            return
        caller, _ = accepted
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
                caller.send(msgspec.json.encode(self._answer_or_refuse(caller, data)))
                return
        selector.unregister(caller)
        self._callers.remove(caller)
        caller.close()
        if self._recorder is caller:
            try:
                self._end_recording()
            except Exception as error:
                report(f"the recording could not be ended: {error}")

    def _answer_or_refuse(self, caller: socket.socket, data: bytes) -> JobState | JobSteps:
        """Whatever goes wrong with one request, the others are answered."""
        try:
            return self._answer(caller, data)
        except Exception as error:
            if self._recorder is caller:
                self._recorder = None
            return JobState("", 0, error=f"{type(error).__name__}: {error}")

    def _answer(self, caller: socket.socket, data: bytes) -> JobState | JobSteps:
        try:
            request = msgspec.json.decode(data, type=_Request)
        except msgspec.DecodeError as error:
            return self._refusal(f"not a valid request: {error}")
        if request.ask == "steps":
            return self._job.steps_since(request.job, request.since)
        if request.ask == "record":
            if self._recorder is not None:
                return self._refusal("another process is recording this job")
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

    def fileno(self) -> int:
        return self._connection.fileno()

    def ask_state(self) -> None:
        """Asks for what `told_state` returns, without waiting for it."""
        self._send(_Request("state"))

    def told_state(self) -> JobState:
        """As `state`, after `ask_state`."""
        return self._receive(JobState)

    def _ask(self, request: _Request, kind: type[_Answer]) -> _Answer:
        self._send(request)
        return self._receive(kind)

    def _send(self, request: _Request) -> None:
        try:
            self._connection.send(msgspec.json.encode(request))
        except OSError:
            self._connection.close()
            raise self._ended() from None

    def _ended(self) -> HvdtuneError:
        return HvdtuneError(f"the job of process {self.pid} has ended")

    def _receive(self, kind: type[_Answer]) -> _Answer:
        try:
            data = self._connection.recv(_MAX_BYTES)
        except OSError:
            self._connection.close()  # an answer that comes late would be taken for the next one's
            data = b""
        if not data:
            raise self._ended()
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
        self.close()

    def close(self) -> None:
        """Hangs up, which ends what was asked for."""
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
        pids = list(_with_ancestors(int(target)))
        clients = sorted(_reached(pids), key=lambda client: pids.index(client.pid))
        _close_all(clients[1:])
        if clients:
            return clients[0]
        raise UsageError(
            f"process {target} is not a job that `hvdtune run` started on this machine"
        )
    folder = Path(target)
    if not folder.is_dir():
        raise UsageError(f"{target} is neither a process id nor a run folder")
    clients = _reached(None)
    for client, state in _states(clients):
        if folder.resolve() in Path(state.timeline).parents:
            _close_all([other for other in clients if other is not client])
            return client
    _close_all(clients)
    raise UsageError(f"no job runs in {target} now")


def _close_all(clients: Sequence[ControlClient]) -> None:
    for client in clients:
        client.close()


def _names() -> Iterator[tuple[int, str]]:
    """Yields what may be sockets of launchers: the process in the name, and the name."""
    # A name may be any bytes, ends of lines among them. A listener's connections have it, too.
    words = Path("/proc/net/unix").read_bytes().decode("ascii", "replace").split()
    for word in dict.fromkeys(words):
        pid, _, rest = word.removeprefix(f"@{_PREFIX}").partition("-")
        if word.startswith(f"@{_PREFIX}") and pid.isdigit() and rest.isalnum():
            yield int(pid), word[1:]


def _reached(pids: Sequence[int] | None) -> list[ControlClient]:
    """Connections to the launchers that these processes are, or to all, of this user.

    A socket that takes no more connections is tried again for as long as a launcher may take to
    answer; nobody else's can delay those that do.
    """
    names = [name for pid, name in _names() if pids is None or pid in pids]
    deadline_s = time.monotonic() + _ANSWER_S
    clients: list[ControlClient] = []
    while True:
        busy = []
        for name in names:
            try:
                if (client := _open_connection(name)) is not None:
                    clients.append(client)
            except BlockingIOError:
                busy.append(name)
        if not busy or clients or time.monotonic() > deadline_s:
            return clients
        names = busy
        time.sleep(_AGAIN_S)


def _states(clients: Sequence[ControlClient]) -> Iterator[tuple[ControlClient, JobState]]:
    """Yields the answers of these launchers as they come, until the deadline of an answer."""
    deadline_s = time.monotonic() + _ANSWER_S
    with selectors.DefaultSelector() as selector:
        for client in clients:
            with contextlib.suppress(HvdtuneError):  # it has ended since
                client.ask_state()
                selector.register(client, selectors.EVENT_READ)
        while selector.get_map():
            ready = selector.select(max(0.0, deadline_s - time.monotonic()))
            if not ready:
                return
            for key, _ in ready:
                selector.unregister(key.fileobj)
                with contextlib.suppress(HvdtuneError):
                    assert isinstance(key.fileobj, ControlClient)
                    yield key.fileobj, key.fileobj.told_state()


def _open_connection(name: str) -> ControlClient | None:
    """None where no launcher of this user listens. Raises BlockingIOError where it is too busy."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
    try:
        connection.connect(f"\0{name}")
        pid, uid, _ = _peer(connection)
        connection.settimeout(_ANSWER_S)
    except BlockingIOError:
        connection.close()
        raise
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
