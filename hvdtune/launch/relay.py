"""A rank on another host, as a process of this one: `python -m hvdtune.launch.relay`.

To the launcher it is the rank: it has its descriptors, writes its output, ends with its exit code
or by its signal, and leaves its traces where the launcher wants them. At the other end of ssh is
`hvdtune.launch.agent`.
"""

from __future__ import annotations

import os
import resource
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NoReturn

import msgspec

from hvdtune import __version__
from hvdtune.core.config import own_environ
from hvdtune.errors import HvdtuneError, LaunchError
from hvdtune.launch import frames
from hvdtune.launch.frames import FarJob, Frames, frame
from hvdtune.launch.mpirun import exportable

_READ_BYTES: Final = 1 << 16
_GREETING_BYTES: Final = 1 << 16


def relay_command(
    host: str, ssh: Sequence[str], descriptors: Sequence[int], command: Sequence[str]
) -> tuple[str, ...]:
    """The argument vector of the relay of a rank on `host`; `ssh` are further words for ssh."""
    numbers = ",".join(map(str, descriptors))
    return (sys.executable, "-m", "hvdtune.launch.relay", host, shlex.join(ssh), numbers, *command)


def main(arguments: Sequence[str]) -> int:
    """Runs the rank; returns its exit code, or does not return where a signal ended it."""
    host, ssh, numbers, *command = arguments
    descriptors = [int(number) for number in numbers.split(",") if number]
    try:
        return _relay(host, shlex.split(ssh), descriptors, command)
    except HvdtuneError as error:
        print(f"hvdtune: {host}: {error}", file=sys.stderr)
        return 1


def _relay(host: str, ssh: Sequence[str], descriptors: Sequence[int], command: list[str]) -> int:
    environ = own_environ()
    environ = {name: environ[name] for name in exportable([*environ])}
    files = {number: os.pread(number, os.fstat(number).st_size, 0) for number in descriptors}
    job = FarJob(command, str(Path.cwd()), environ, files)
    try:
        connection = subprocess.Popen(
            ssh_command(host, ssh, environ), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
    except OSError as error:
        raise LaunchError(f"cannot start ssh: {error.strerror}") from None
    with connection:
        try:
            code = _converse(connection, frame(frames.JOB, msgspec.msgpack.encode(job)))
        finally:
            assert connection.stdin is not None
            connection.stdin.close()
        if code is None:
            raise LaunchError(_why_it_ended(connection.wait()))
    return code if code >= 0 else _end_by(-code)


def ssh_command(host: str, words: Sequence[str], environ: dict[str, str]) -> list[str]:
    """What starts the agent; nothing secret is in it.

    ssh never asks: there is one terminal, and many ranks.
    """
    path = environ.get("PYTHONPATH", "")
    agent = shlex.join(["env", f"PYTHONPATH={path}", sys.executable, "-m", "hvdtune.launch.agent"])
    options = ["-T", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=15"]
    return ["ssh", *options, *words, "--", host, f"exec {agent}"]


def _converse(connection: subprocess.Popen[bytes], job: bytes) -> int | None:
    """The rank's return code, None when ssh ended without one."""
    assert connection.stdin is not None and connection.stdout is not None
    stdin, stdout = connection.stdin.fileno(), connection.stdout.fileno()
    incoming = _frames(stdout)
    version = next(incoming, (b"", b""))[1].decode(errors="replace")
    if not version:
        return None
    if version != __version__:
        raise LaunchError(
            f"it has hvdtune {version}, this host has {__version__}: install the same"
        )
    try:
        rest = memoryview(job)
        while rest:
            rest = rest[os.write(stdin, rest) :]
        signal.signal(signal.SIGTERM, lambda number, _: _pass_on(stdin, number))
    except BrokenPipeError:
        return None
    for kind, payload in incoming:
        if kind == frames.EXIT:
            return int.from_bytes(payload, "big", signed=True)
        _take(kind, payload)
    return None


def _pass_on(stdin: int, number: int) -> None:
    try:
        os.write(stdin, frame(frames.SIGNAL, bytes([number])))
    except BrokenPipeError:
        return  # the rank has ended


def _frames(stdout: int) -> Iterator[tuple[bytes, bytes]]:
    """All frames, without what a login shell prints before the agent speaks."""
    greeting = b""
    while frames.MAGIC not in greeting:
        data = os.read(stdout, _READ_BYTES)
        if not data or len(greeting) > _GREETING_BYTES:
            return
        greeting += data
    reader = Frames()
    data = greeting.partition(frames.MAGIC)[2] or os.read(stdout, _READ_BYTES)
    while data:
        yield from reader.feed(data)
        data = os.read(stdout, _READ_BYTES)


def _take(kind: bytes, payload: bytes) -> None:
    if kind == frames.REFUSED:
        raise LaunchError(payload.decode(errors="replace"))
    if kind in (frames.OUT, frames.ERR):
        rest = memoryview(payload)
        while rest:
            rest = rest[os.write(1 if kind == frames.OUT else 2, rest) :]
    elif kind == frames.FILE:
        number = int.from_bytes(payload[:4], "big")
        with open(f"/proc/self/fd/{number}", "r+b") as file:
            file.write(payload[4:])
    elif kind == frames.TRACE:
        _keep_trace(payload)


def _keep_trace(payload: bytes) -> None:
    name, piece = msgspec.msgpack.decode(payload, type=tuple[str, bytes])
    folder = Path(own_environ()["HVDTUNE_TIMELINE"]).parent
    try:
        # The name is the other machine's word: nothing of it may lead elsewhere.
        with (folder / Path(name).name).open("ab") as file:
            file.write(piece)
    except OSError as error:
        raise LaunchError(f"cannot keep its trace in {folder}: {error.strerror}") from None


def _why_it_ended(code: int) -> str:
    if code == 127:
        return f"there is no {sys.executable}: every host needs the same Python at the same path"
    if code == 255:
        return "ssh cannot log in without asking, or the connection broke (its own words are above)"
    return "the rank was not started: is hvdtune installed in the same place there?"


def _end_by(number: int) -> NoReturn:
    """Ends as the rank did; the memory of this process is of no interest."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    raise AssertionError("a signal that ended the rank did not end its relay")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
