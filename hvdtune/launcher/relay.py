"""A local process that represents a rank on another host: `python -m hvdtune.launcher.relay`.

The launcher treats it as the rank: it has the rank's descriptors, writes its output, ends with its
exit code or signal, and stores its raw traces. It talks to `hvdtune.launcher.agent` on that host.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import resource
import select
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NoReturn

import msgspec

from hvdtune import __version__
from hvdtune.core.config.environment import inherited_environ
from hvdtune.core.config.key_source import KEY_BYTES
from hvdtune.core.job import proof
from hvdtune.core.job.child_command import module_command, of_ranks
from hvdtune.core.job.records import RecordChannel
from hvdtune.errors import HvdtuneError, LaunchError
from hvdtune.launcher import frames
from hvdtune.launcher.frames import Frames, NodeJob, RemoteJob, frame, write_all
from hvdtune.launcher.mpirun import is_own
from hvdtune.launcher.nodes.connections import end_with_host, limit_unanswered
from hvdtune.launcher.nodes.way import NodeWay

_READ_BYTES: Final = 1 << 16
_GREETING_BYTES: Final = 1 << 16
# Pause before a node that closed the connection for lack of room is dialed again.
_RETRY_S: Final = 0.2
_GONE: Final = (BrokenPipeError, ConnectionResetError)
_BROKEN: Final = "The connection broke, or the agent on that host was killed."


def relay_command(
    host: str,
    ssh: Sequence[str],
    answer_s: float,
    descriptors: Sequence[int],
    command: Sequence[str],
    node: NodeWay | None = None,
) -> tuple[str, ...]:
    """Return the argument vector of the relay of a rank on `host`.

    Args:
        ssh: further words for ssh; unused with a `node`.
        answer_s: limit for the agent's answer.
        descriptors: those whose content the rank inherits; unused with a `node`.
        command: the rank's argument vector; unused with a `node`, which has its own.
    """
    numbers = ",".join(map(str, descriptors))
    way = "" if node is None else json.dumps(dataclasses.asdict(node))
    own = (host, shlex.join(ssh), way, f"{answer_s:g}", numbers)
    return (*module_command("hvdtune.launcher.relay", of_ranks()), *own, *command)


def main(arguments: Sequence[str]) -> int:
    """Run the rank and return its exit code. End by a signal if the rank did."""
    host, ssh, way, answer_s, numbers, *command = arguments
    descriptors = [int(number) for number in numbers.split(",") if number]
    environ = inherited_environ()
    try:
        if way:
            code = _relay_to_node(NodeWay(**json.loads(way)), environ, float(answer_s))
        else:
            environ = {name: environ[name] for name in environ if not is_own(name)}
            job = RemoteJob(
                [os.fsencode(word) for word in command],
                os.fsencode(Path.cwd()),
                _encoded(environ),
                {number: os.pread(number, os.fstat(number).st_size, 0) for number in descriptors},
            )
            code = _relay(ssh_command(host, shlex.split(ssh), environ), job, float(answer_s))
    except HvdtuneError as error:
        print(f"hvdtune: {host}: {error}", file=sys.stderr)
        return 1
    return code if code >= 0 else _end_by(-code)


def ssh_command(
    host: str,
    words: Sequence[str],
    environ: Mapping[str, str],
    module: str = "hvdtune.launcher.agent",
) -> list[str]:
    """Return the command that starts the agent, or another module, on a host.

    It contains no secret. ssh never prompts: many ranks share one terminal.
    """
    path = environ.get("PYTHONPATH", "")
    program = shlex.join(["env", f"PYTHONPATH={path}", *module_command(module)])
    options = ["-T", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=15"]
    return ["ssh", *options, *words, "--", host, f"exec {program}"]


def _encoded(variables: Mapping[str, str]) -> dict[bytes, bytes]:
    return {os.fsencode(name): os.fsencode(value) for name, value in variables.items()}


def _relay(command: Sequence[str], job: RemoteJob, answer_s: float) -> int:
    try:
        ssh = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    except OSError as error:
        raise LaunchError(f"Cannot start ssh: {error.strerror}.") from None
    assert ssh.stdin is not None and ssh.stdout is not None
    conversation = _Conversation(ssh.stdin.fileno(), ssh.stdout.fileno())
    with ssh:
        try:
            code = conversation.hold(msgspec.msgpack.encode(job), job.files, answer_s)
        except BaseException:
            ssh.kill()
            raise
        finally:
            ssh.stdin.close()
        if code is None:
            raise LaunchError(conversation.why_it_ended(ssh.wait()))
        return code


def _relay_to_node(node: NodeWay, environ: Mapping[str, str], answer_s: float) -> int:
    """Run the rank on a node that serves this command."""
    variables = {name: environ[name] for name in node.variables}
    job = msgspec.msgpack.encode(NodeJob(_encoded(variables), bytes.fromhex(node.nonce)))
    key = os.pread(node.key_fd, KEY_BYTES, 0)
    os.close(node.key_fd)
    connection, session = _dial(node, key, answer_s)
    end_with_host(connection)
    limit_unanswered(connection)  # this end sends little
    with contextlib.closing(RecordChannel(connection, session, dialed=True)) as channel:
        end = channel.local.fileno()
        code = _Conversation(end, end).hold(job, (), answer_s)
    if code is None:
        raise LaunchError(_BROKEN)
    return code


def _dial(node: NodeWay, key: bytes, answer_s: float) -> tuple[socket.socket, bytes]:
    deadline_s = time.monotonic() + answer_s
    while True:
        left_s = max(0.001, deadline_s - time.monotonic())
        try:
            return proof.dial((node.address, node.port), key, proof.RANK, node.number, left_s)
        except proof.CutOffError:
            if time.monotonic() > deadline_s:
                raise
        except OSError as error:
            raise LaunchError(f"No answer from the node: {error.strerror or error}.") from None
        time.sleep(_RETRY_S)


class _Conversation:
    """The messages to and from one agent. Used from one thread, and by SIGTERM's handler.

    Another thread sends ALIVE, because the first may be blocked in a write to a stopped launcher.
    Both may write: frames shorter than a pipe's smallest atomic write do not mix.
    """

    def __init__(self, stdin: int, stdout: int) -> None:
        self._stdin, self._stdout = stdin, stdout
        self._reader = Frames()
        self._started = False

    def hold(self, job: bytes, files: Container[int], answer_s: float) -> int | None:
        """Return the rank's return code; None if the connection ended before it arrived.

        Args:
            job: the payload of the frame JOB.
            files: the descriptors that the agent may change.
        """
        rest = self._wait_for_magic(answer_s)
        if rest is None:
            return None
        incoming = self._frames(rest)
        kind, version = next(incoming, (b"", b""))
        if kind != frames.HELLO:
            return None
        if version.decode(errors="replace") != __version__:
            raise LaunchError(
                f"The host has hvdtune {version.decode(errors='replace')}, this host has "
                f"{__version__}. Install the same version on both."
            )
        try:
            write_all(self._stdin, frame(frames.JOB, job))
        except _GONE:
            return None
        signal.signal(signal.SIGTERM, self._pass_on)
        with self._beating():
            for kind, payload in incoming:
                if kind == frames.EXIT:
                    return int.from_bytes(payload, "big", signed=True)
                if kind == frames.STARTED:
                    self._started = True
                else:
                    _take(kind, payload, files)
        return None

    @contextlib.contextmanager
    def _beating(self) -> Iterator[None]:
        ended = threading.Event()

        def beat() -> None:
            # The main thread handles signals.
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            while not ended.is_set():
                # While ssh reads nothing, more of these would only fill the pipe.
                if select.select([], [self._stdin], [], 0)[1]:
                    with contextlib.suppress(*_GONE):  # the rank has ended
                        os.write(self._stdin, frame(frames.ALIVE, b""))
                ended.wait(frames.BEAT_S)

        thread = threading.Thread(target=beat, name="hvdtune-beat", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def why_it_ended(self, code: int) -> str:
        """Return why ssh ended; ssh prints its own errors on stderr."""
        if self._started:
            return _BROKEN
        if code == 127:
            return (
                f"{sys.executable} is missing. Every host needs the same Python at the same path."
            )
        if code == 255:
            return "ssh cannot log in without a prompt. See the message of ssh above."
        return "The rank did not start. Install hvdtune at the same path on this host."

    def _wait_for_magic(self, answer_s: float) -> bytes | None:
        """Return the bytes after MAGIC; a login shell may print text before it."""
        greeting = b""
        deadline_s = time.monotonic() + answer_s
        while frames.MAGIC not in greeting:
            left_s = max(0.0, deadline_s - time.monotonic())
            if not select.select([self._stdout], [], [], left_s)[0]:
                limit = f"{answer_s:g} s (HVDTUNE_START_TIMEOUT_S)"
                raise LaunchError(f"No answer from the agent within {limit}.")
            data = self._read()
            if not data or len(greeting) > _GREETING_BYTES:
                return None
            greeting += data
        return greeting.partition(frames.MAGIC)[2]

    def _frames(self, data: bytes) -> Iterator[tuple[bytes, bytes]]:
        yield from self._reader.feed(data)
        while data := self._read():
            yield from self._reader.feed(data)

    def _read(self) -> bytes:
        try:
            return os.read(self._stdout, _READ_BYTES)
        except ConnectionResetError:
            return b""

    def _pass_on(self, number: int, _: object) -> None:
        with contextlib.suppress(*_GONE):  # the rank has ended
            os.write(self._stdin, frame(frames.SIGNAL, bytes([number])))


def _take(kind: bytes, payload: bytes, files: Container[int]) -> None:
    if kind == frames.REFUSED:
        raise LaunchError(payload.decode(errors="replace"))
    if kind in (frames.OUT, frames.ERR):
        # ssh shares stderr and makes it non-blocking.
        write_all(1 if kind == frames.OUT else 2, payload)
    elif kind == frames.FILE:
        number = int.from_bytes(payload[:4], "big")
        if number not in files:
            raise LaunchError(f"The agent writes to descriptor {number}, which it does not have.")
        with open(f"/proc/self/fd/{number}", "r+b") as file:
            file.write(payload[4:])
    elif kind == frames.TRACE:
        _keep_trace(payload)


def _keep_trace(payload: bytes) -> None:
    name, piece = msgspec.msgpack.decode(payload, type=tuple[str, bytes])
    folder = Path(inherited_environ()["HVDTUNE_TIMELINE"]).parent
    try:
        # The other machine chose the name: use its last part only.
        with (folder / Path(name).name).open("ab") as file:
            file.write(piece)
    except OSError as error:
        raise LaunchError(f"Cannot write the rank's trace to {folder}: {error.strerror}.") from None


def _end_by(number: int) -> NoReturn:
    """End this process by the signal that ended the rank, without a core dump."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    raise AssertionError("a signal that ended the rank did not end its relay")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
