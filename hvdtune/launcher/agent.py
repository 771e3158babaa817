"""A rank's host, when that is another machine: `python -m hvdtune.launcher.agent`, started by ssh.

Starts the rank that the relay describes, passes on what it writes, and ends it with the connection.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from hvdtune import __version__
from hvdtune.core.config.environment import worker_environ
from hvdtune.core.config.launched import give
from hvdtune.errors import HvdtuneError, LaunchError
from hvdtune.launcher import frames
from hvdtune.launcher.frames import Frames, RemoteJob, frame, write_all
from hvdtune.launcher.hosts import address_towards
from hvdtune.launcher.spawn import ProcessGroup

_READ_BYTES: Final = 1 << 16
_TRACE_BYTES: Final = 1 << 20
# What a rank's own children may still write after its end.
_LAST_OUTPUT_S: Final = 2.0


def main() -> int:
    """Serves one rank over stdin and stdout."""
    _send(frames.MAGIC + frame(frames.HELLO, __version__.encode()))
    reader = Frames()
    try:
        job = _receive_job(reader)
        if job is None:
            return 1
        with _traces_here(job) as environ:
            try:
                os.chdir(job.folder)
            except OSError as error:
                folder = os.fsdecode(job.folder)
                raise LaunchError(f"the launcher's folder {folder}: {error.strerror}") from None
            _run(job, environ, reader)
    except HvdtuneError as error:
        _send(frame(frames.REFUSED, str(error).encode()))
        return 1
    except BrokenPipeError:
        return 1  # the launcher has gone, and with it whoever could be told
    return 0


def _receive_job(reader: Frames) -> RemoteJob | None:
    while data := os.read(0, _READ_BYTES):
        for kind, payload in reader.feed(data):
            if kind != frames.JOB:
                raise LaunchError("the launcher did not send a job")
            try:
                return msgspec.msgpack.decode(payload, type=RemoteJob)
            except msgspec.MsgspecError as error:
                raise LaunchError(f"the launcher's job cannot be read: {error}") from None
    return None


def _run(job: RemoteJob, environ: dict[str, str], reader: Frames) -> None:
    _adopt(job.files)
    group = ProcessGroup()
    try:
        command = [os.fsdecode(word) for word in job.command]
        child = group.start(command, environ, tuple(job.files))
        _send(frame(frames.STARTED, b""))
        served = _serve(child, reader)
    finally:
        group.kill()
    if served:
        for number, content in job.files.items():
            now = os.pread(number, os.fstat(number).st_size, 0)
            if now != content:
                _send(frame(frames.FILE, number.to_bytes(4, "big") + now))
        _send_traces(environ)
        code: int = child.returncode
        _send(frame(frames.EXIT, code.to_bytes(4, "big", signed=True)))


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


def _serve(child: subprocess.Popen[bytes], reader: Frames) -> bool:
    """Serve until the rank has ended; return False if the launcher hung up before."""
    assert child.stdout is not None and child.stderr is not None
    with selectors.DefaultSelector() as selector:
        selector.register(0, selectors.EVENT_READ)
        streams = {child.stdout.fileno(): frames.OUT, child.stderr.fileno(): frames.ERR}
        for number in streams:
            selector.register(number, selectors.EVENT_READ)
        deadline_s: float | None = None
        while streams:
            if deadline_s is None and child.poll() is not None:
                deadline_s = time.monotonic() + _LAST_OUTPUT_S
            if deadline_s is not None and time.monotonic() > deadline_s:
                break
            for key, _ in selector.select(0.1):
                data = os.read(key.fd, _READ_BYTES)
                if key.fd == 0 and not data:
                    return False
                if key.fd == 0:
                    _obey(child, reader, data)
                elif data:
                    _send(frame(streams[key.fd], data))
                else:
                    selector.unregister(key.fd)
                    del streams[key.fd]
    return _await_end(child, reader)


def _await_end(child: subprocess.Popen[bytes], reader: Frames) -> bool:
    """A rank may close its output long before it ends."""
    with selectors.DefaultSelector() as selector:
        selector.register(0, selectors.EVENT_READ)
        while child.poll() is None:
            if selector.select(0.1):
                data = os.read(0, _READ_BYTES)
                if not data:
                    return False
                _obey(child, reader, data)
    return True


def _obey(child: subprocess.Popen[bytes], reader: Frames, data: bytes) -> None:
    for kind, payload in reader.feed(data):
        if kind == frames.SIGNAL and child.poll() is None:
            child.send_signal(payload[0])


@contextlib.contextmanager
def _traces_here(job: RemoteJob) -> Iterator[dict[str, str]]:
    """The rank's environment: its traces and its address are this host's."""
    told = {os.fsdecode(name): os.fsdecode(value) for name, value in job.environ.items()}
    environ = worker_environ(told | {"PWD": os.fsdecode(job.folder)})
    if not environ.get("HVDTUNE_INTERFACE") and not environ.get("HOROVOD_GLOO_IFACE"):
        launcher, _, _ = environ["HVDTUNE_RENDEZVOUS"].rpartition(":")
        give(environ, "HVDTUNE_ADDRESS", address_towards(launcher))
    if not environ.get("HVDTUNE_TIMELINE"):
        yield environ
        return
    folder = Path(tempfile.mkdtemp(prefix="hvdtune-trace-"))
    give(environ, "HVDTUNE_TIMELINE", str(folder / Path(environ["HVDTUNE_TIMELINE"]).name))
    try:
        yield environ
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _send_traces(environ: dict[str, str]) -> None:
    if environ.get("HVDTUNE_TIMELINE"):
        for path in sorted(Path(environ["HVDTUNE_TIMELINE"]).parent.iterdir()):
            with path.open("rb") as file:
                while piece := file.read(_TRACE_BYTES):
                    _send(frame(frames.TRACE, msgspec.msgpack.encode((path.name, piece))))


def _send(data: bytes) -> None:
    write_all(1, data)


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    # sshd ends what it started with SIGHUP; the end of stdin says the same, and is seen to.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    sys.exit(main())
