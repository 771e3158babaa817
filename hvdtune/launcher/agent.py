"""A rank's host, when that is another machine: `python -m hvdtune.launcher.agent`, started by ssh
or by a node that serves the launcher (`hvdtune.launcher.nodes`), whose connection is then stdin and
stdout.

Starts the rank that the relay describes, passes on what it writes, and ends it with the connection,
or when nothing is heard of the launcher any more.
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
from typing import Final

import msgspec

from hvdtune import __version__, parse
from hvdtune.core.config.environment import own_environ, worker_environ
from hvdtune.core.config.launched import give
from hvdtune.errors import HvdtuneError, LaunchError
from hvdtune.launcher import frames
from hvdtune.launcher.frames import Frames, RemoteJob, frame
from hvdtune.launcher.hosts import address_towards
from hvdtune.launcher.spawn import ProcessGroup

_READ_BYTES: Final = 1 << 16
_TRACE_BYTES: Final = 1 << 20
# Between two looks at the rank, and at the clock.
_TURN_S: Final = 0.1
# What a rank's own children may still write after its end.
_LAST_OUTPUT_S: Final = 2.0


class _HungUpError(Exception):
    """The launcher has gone, and with it whoever could be told."""


class _Relay:
    """The other end of ssh, of which one thread takes and to which it tells.

    Every call raises _HungUpError when the connection has ended or nothing has come for
    `frames.SILENCE_S`, in which a relay would have said several times that it lives.
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
        """Returns the messages that have come, after waiting at most `timeout_s` for one."""
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
        """Lets the relay hang up first: a socket that is closed with bytes unread in it takes back
        what was sent last."""
        if stat.S_ISSOCK(os.fstat(self._source).st_mode):
            with contextlib.suppress(_HungUpError):
                while True:
                    self._listen(_TURN_S)

    def _has_more(self) -> bool:
        """Asked after the clock: this process may have been stopped, and nobody else silent."""
        return bool(select.select([self._source], [], [], 0)[0])


def main() -> int:
    """Serves one rank over stdin and stdout."""
    relay = _Relay()
    try:
        relay.greet()
        job = _receive_job(relay)
        with _traces_here(job) as environ:
            try:
                os.chdir(job.folder)
            except OSError as error:
                folder = os.fsdecode(job.folder)
                raise LaunchError(f"the launcher's folder {folder}: {error.strerror}") from None
            _run(job, environ, relay)
        relay.await_farewell()
    except HvdtuneError as error:
        with contextlib.suppress(_HungUpError):
            relay.send(frames.REFUSED, str(error).encode())
        return 1
    except _HungUpError:
        return 1
    return 0


def _receive_job(relay: _Relay) -> RemoteJob:
    while not (came := relay.take(_TURN_S)):
        pass
    kind, payload = came[0]
    if kind != frames.JOB:
        raise LaunchError("the launcher did not send a job")
    try:
        return msgspec.msgpack.decode(payload, type=RemoteJob)
    except msgspec.MsgspecError as error:
        raise LaunchError(f"the launcher's job cannot be read: {error}") from None


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
    """Opens memory files under the numbers that the rank is told."""
    for number, content in files.items():
        low = os.memfd_create("hvdtune-file", os.MFD_CLOEXEC)
        try:
            high = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, max(files) + 1)
        except OSError as error:
            raise LaunchError(
                f"descriptor {number} of the launcher is too high for this host's limit "
                f"(ulimit -n): {error.strerror}"
            ) from None
        finally:
            os.close(low)
        with os.fdopen(high, "wb") as file:
            file.write(content)
            file.flush()
            os.dup2(high, number, inheritable=False)


def _serve(child: subprocess.Popen[bytes], relay: _Relay) -> None:
    """Serves until the rank has ended, which may be long after it has closed its output."""
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
    """This host's address, by which the launcher's host reaches it."""
    address = ipaddress.ip_address(launcher)
    came_by = own_environ().get("SSH_CONNECTION", "").split()
    if address.version == 6 and address.is_link_local and len(came_by) == 4:
        return came_by[2]  # which link leads to such an address only the connection knows
    return address_towards(launcher)


@contextlib.contextmanager
def _traces_here(job: RemoteJob) -> Iterator[dict[str, str]]:
    """The rank's environment: its traces and its address are this host's."""
    told = {os.fsdecode(name): os.fsdecode(value) for name, value in job.environ.items()}
    environ = worker_environ(told | {"PWD": os.fsdecode(job.folder)})
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
    # sshd ends what it started with SIGHUP; the end of stdin says the same, and is seen to.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    sys.exit(main())
