"""The process that runs one rank on another host: `python -m hvdtune.launcher.agent`.

ssh starts it, or a node that serves the launcher (`hvdtune.launcher.nodes`). Its stdin and stdout
are the connection to the relay. It starts the rank that the relay describes, sends the rank's
output, and ends the rank when the connection ends or the launcher is silent.

A node gives two arguments more: the descriptor of a file with the nodes' common key, and the rank's
command. Then the relay sends only a `NodeJob`.
"""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import os
import select
import selectors
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from hvdtune import __version__, parse
from hvdtune.core.config.environment import own_environ, worker_environ
from hvdtune.core.config.key_source import KEY_BYTES
from hvdtune.core.config.launched import give
from hvdtune.errors import HvdtuneError, LaunchError
from hvdtune.launcher import frames
from hvdtune.launcher.frames import Frames, NodeJob, RemoteJob, frame
from hvdtune.launcher.hosts import address_towards
from hvdtune.launcher.nodes.way import derive_job_key
from hvdtune.launcher.spawn import ProcessGroup

_READ_BYTES: Final = 1 << 16
_TRACE_BYTES: Final = 1 << 20
# Interval at which the rank and the clock are checked.
_TURN_S: Final = 0.1
# How long output of the rank's own children is still read after its end.
_LAST_OUTPUT_S: Final = 2.0


_Job = TypeVar("_Job", RemoteJob, NodeJob)


class _HungUpError(Exception):
    """The connection to the launcher has ended."""


class _Relay:
    """The connection to the relay. Used from one thread.

    Every call raises _HungUpError if the connection has ended, or after `frames.SILENCE_S` without
    a message; a relay sends several ALIVE in that time.
    """

    def __init__(
        self,
        source: int = 0,
        target: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source, self._target, self._clock = source, target, clock
        self._reader = Frames()
        self._heard_s = clock()
        self._came: list[tuple[bytes, bytes]] = []
        os.set_blocking(target, False)

    def greet(self) -> None:
        self._write(frames.MAGIC)
        self.send(frames.HELLO, __version__.encode())

    def send(self, kind: bytes, payload: bytes = b"") -> None:
        self._write(frame(kind, payload))

    def take(self, timeout_s: float) -> list[tuple[bytes, bytes]]:
        """Return the messages that have arrived; wait at most `timeout_s` for one."""
        self._listen(timeout_s)
        came, self._came = self._came, []
        return [message for message in came if message[0] != frames.ALIVE]

    def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._target, rest) :]
            except BlockingIOError:
                self._listen(_TURN_S, [self._target])
            except (BrokenPipeError, ConnectionResetError):
                raise _HungUpError from None

    def _listen(self, timeout_s: float, writable: Sequence[int] = ()) -> None:
        if select.select([self._source], writable, [], timeout_s)[0]:
            data = self._read()
            if not data:
                raise _HungUpError
            self._heard_s = self._clock()
            self._came += self._reader.feed(data)
        elif self._clock() - self._heard_s > frames.SILENCE_S and not self._has_more():
            raise _HungUpError

    def _read(self) -> bytes:
        try:
            return os.read(self._source, _READ_BYTES)
        except ConnectionResetError:
            return b""

    def await_farewell(self) -> None:
        """Wait until the relay hangs up: closing a socket with unread bytes in it would discard
        the last data that was sent."""
        if stat.S_ISSOCK(os.fstat(self._source).st_mode):
            with contextlib.suppress(_HungUpError):
                while True:
                    self._listen(_TURN_S)

    def _has_more(self) -> bool:
        """Check again after the clock: this process may have been stopped, not the relay."""
        return bool(select.select([self._source], [], [], 0)[0])


def main(arguments: Sequence[str] = ()) -> int:
    """Serve one rank over stdin and stdout.

    Args:
        arguments: none after ssh; else the descriptor of the common key, and the rank's command.
    """
    relay = _Relay()
    try:
        relay.greet()
        job = _receive_node_job(relay, *arguments) if arguments else _receive(relay, RemoteJob)
        with _traces_here(job) as environ:
            try:
                os.chdir(job.folder)
            except OSError as error:
                folder = os.fsdecode(job.folder)
                raise LaunchError(f"The launcher's folder {folder}: {error.strerror}.") from None
            _run(job, environ, relay)
        relay.await_farewell()
    except HvdtuneError as error:
        with contextlib.suppress(_HungUpError):
            relay.send(frames.REFUSED, str(error).encode())
        return 1
    except _HungUpError:
        return 1
    return 0


def _receive(relay: _Relay, kind_of_job: type[_Job]) -> _Job:
    while not (came := relay.take(_TURN_S)):
        pass
    kind, payload = came[0]
    if kind != frames.JOB:
        raise LaunchError("The launcher did not send a job.")
    try:
        return msgspec.msgpack.decode(payload, type=kind_of_job)
    except msgspec.MsgspecError as error:
        raise LaunchError(f"Cannot read the launcher's job: {error}.") from None


def _receive_node_job(relay: _Relay, key_fd: str, *command: str) -> RemoteJob:
    """Complete the job with this node's command and folder, and with the job's key."""
    common = os.pread(int(key_fd), KEY_BYTES, 0)
    os.close(int(key_fd))
    job = _receive(relay, NodeJob)
    return RemoteJob(
        [os.fsencode(word) for word in command],
        os.fsencode(Path.cwd()),
        job.variables,
        {int(job.variables[b"HVDTUNE_KEY_FD"]): derive_job_key(common, job.nonce)},
    )


def _run(job: RemoteJob, environ: dict[str, str], relay: _Relay) -> None:
    _adopt(job.files)
    group = ProcessGroup()
    try:
        command = [os.fsdecode(word) for word in job.command]
        child = group.start(command, environ, tuple(job.files))
        relay.send(frames.STARTED)
        _serve(child, relay)
    finally:
        group.kill()
    for number, content in job.files.items():
        now = os.pread(number, os.fstat(number).st_size, 0)
        if now != content:
            relay.send(frames.FILE, number.to_bytes(4, "big") + now)
    _send_traces(environ, relay)
    code: int = child.returncode
    relay.send(frames.EXIT, code.to_bytes(4, "big", signed=True))


def _adopt(files: dict[int, bytes]) -> None:
    """Open memory files with these contents under these descriptor numbers."""
    for number, content in files.items():
        low = os.memfd_create("hvdtune-file", os.MFD_CLOEXEC)
        try:
            high = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, max(files) + 1)
        except OSError as error:
            raise LaunchError(
                f"Descriptor {number} exceeds this host's limit (ulimit -n): {error.strerror}. "
                "Raise the limit."
            ) from None
        finally:
            os.close(low)
        with os.fdopen(high, "wb") as file:
            file.write(content)
            file.flush()
            os.dup2(high, number, inheritable=False)


def _serve(child: subprocess.Popen[bytes], relay: _Relay) -> None:
    """Serve until the rank has ended, which may be long after it has closed its output."""
    assert child.stdout is not None and child.stderr is not None
    with selectors.DefaultSelector() as selector:
        selector.register(0, selectors.EVENT_READ)
        streams = {child.stdout.fileno(): frames.OUT, child.stderr.fileno(): frames.ERR}
        for number in streams:
            selector.register(number, selectors.EVENT_READ)
        deadline_s: float | None = None
        while streams or child.poll() is None:
            if deadline_s is None and child.poll() is not None:
                deadline_s = time.monotonic() + _LAST_OUTPUT_S
            if deadline_s is not None and time.monotonic() > deadline_s:
                break
            for key, _ in selector.select(_TURN_S):
                if key.fd == 0:
                    continue
                if data := os.read(key.fd, _READ_BYTES):
                    relay.send(streams[key.fd], data)
                else:
                    selector.unregister(key.fd)
                    del streams[key.fd]
            for kind, payload in relay.take(0):
                if kind == frames.SIGNAL and child.poll() is None:
                    child.send_signal(payload[0])


def address_for_launcher(launcher: str) -> str:
    """Return the address at which the launcher's host reaches this host."""
    address = ipaddress.ip_address(launcher)
    came_by = own_environ().get("SSH_CONNECTION", "").split()
    if address.version == 6 and address.is_link_local and len(came_by) == 4:
        return came_by[2]  # includes the link, which a link-local address needs
    return address_towards(launcher)


@contextlib.contextmanager
def _traces_here(job: RemoteJob) -> Iterator[dict[str, str]]:
    """Provide the rank's environment, with a folder for traces and an address on this host."""
    variables = {os.fsdecode(name): os.fsdecode(value) for name, value in job.environ.items()}
    environ = worker_environ(variables | {"PWD": os.fsdecode(job.folder)})
    if not environ.get("HVDTUNE_INTERFACE") and not environ.get("HOROVOD_GLOO_IFACE"):
        launcher, _ = parse.endpoint(environ["HVDTUNE_RENDEZVOUS"])
        give(environ, "HVDTUNE_ADDRESS", address_for_launcher(launcher))
    if not environ.get("HVDTUNE_TIMELINE"):
        yield environ
        return
    folder = Path(tempfile.mkdtemp(prefix="hvdtune-trace-"))
    give(environ, "HVDTUNE_TIMELINE", str(folder / Path(environ["HVDTUNE_TIMELINE"]).name))
    try:
        yield environ
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _send_traces(environ: dict[str, str], relay: _Relay) -> None:
    if environ.get("HVDTUNE_TIMELINE"):
        for path in sorted(Path(environ["HVDTUNE_TIMELINE"]).parent.iterdir()):
            with path.open("rb") as file:
                while piece := file.read(_TRACE_BYTES):
                    relay.send(frames.TRACE, msgspec.msgpack.encode((path.name, piece)))


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    # sshd sends SIGHUP when the connection ends; the end of stdin is handled instead.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    sys.exit(main(sys.argv[1:]))
