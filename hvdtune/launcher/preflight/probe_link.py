"""The launcher's connection to a probe on a host: questions and answers over two pipes."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from hvdtune import __version__
from hvdtune.core.config.environment import own_environ
from hvdtune.core.job.child_command import module_command
from hvdtune.errors import HvdtuneError
from hvdtune.launcher import frames
from hvdtune.launcher.frames import Frames, frame, write_all
from hvdtune.launcher.preflight.facts import HostFailure
from hvdtune.launcher.preflight.probe import ANSWER, QUESTION
from hvdtune.launcher.relay import ssh_command

PROBE: Final = "hvdtune.launcher.preflight.probe"
_READ_BYTES: Final = 1 << 16
_GREETING_BYTES: Final = 1 << 16
_END_S: Final = 2.0

# Beginnings of ssh's messages if it cannot log in, and the advice.
_SSH_ADVICE: Final = (
    ("could not resolve", "check the spelling, or add the name to DNS or /etc/hosts"),
    (
        "permission denied",
        "let ssh log in with a key: `ssh-copy-id {host}`, or set one with --ssh-identity-file",
    ),
    (
        "host key verification failed",
        "run `ssh {host}` once and accept its key, or add that to ~/.ssh/known_hosts",
    ),
    ("connection refused", "start sshd there, or set its port with --ssh-port"),
    ("timed out", "check that the host is up and that no firewall is in the way of ssh"),
    ("no route to host", "check that the host is up and that no firewall is in the way of ssh"),
    ("cannot start ssh", "install the OpenSSH client on this host"),
)


class ProbeError(HvdtuneError):
    """A host that cannot be asked; `failure` is the reason."""

    def __init__(self, failure: HostFailure) -> None:
        super().__init__(f"{failure.seen}: {failure.advice}")
        self.failure = failure


def probe_command(host: str, *, is_local: bool, ssh: Sequence[str]) -> list[str]:
    """Return the argument vector that starts a probe; it contains no secret."""
    if is_local:
        return [*module_command(PROBE)]
    return ssh_command(host, ssh, own_environ(), PROBE)


class ProbeLink:
    """A connection to one probe, which ends when this is closed. Used from one thread."""

    def __init__(self, host: str, command: Sequence[str]) -> None:
        """Start the command. Raises ProbeError if it cannot be started."""
        self.host = host
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 closed with the link
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                env=own_environ(),
                start_new_session=True,  # Ctrl-C is for the launcher, which closes the pipe
            )
        except OSError as error:
            self._stderr.close()
            seen = f"cannot start {command[0]}: {error.strerror}"
            raise ProbeError(ssh_failure(host, seen)) from None
        self._reader = Frames()
        self._answers: list[tuple[bytes, bytes]] = []

    def greet(self, deadline_s: float) -> str:
        """Return the version of hvdtune there. Raises ProbeError."""
        greeting = b""
        while frames.MAGIC not in greeting:
            data = self._read(deadline_s)
            if not data or len(greeting) > _GREETING_BYTES:
                raise ProbeError(self._why_it_ended())
            greeting += data
        self._answers += self._reader.feed(greeting.partition(frames.MAGIC)[2])
        kind, version = self._next_frame(deadline_s)
        if kind != frames.HELLO:
            raise ProbeError(_no_answer("the answer over ssh is not from hvdtune's check"))
        return version.decode(errors="replace")

    def send(self, question: Mapping[str, Any]) -> None:
        """Send a question; `answer` waits for the answer. Raises ProbeError."""
        assert self._process.stdin is not None
        try:
            write_all(self._process.stdin.fileno(), frame(QUESTION, json.dumps(question).encode()))
        except OSError:
            raise ProbeError(self._why_it_ended()) from None

    def answer(self, timeout_s: float) -> dict[str, Any]:
        """Return the answer to the oldest question. Raises ProbeError."""
        kind, payload = self._next_frame(time.monotonic() + timeout_s)
        if kind != ANSWER:
            raise ProbeError(_no_answer("the check there sent an unexpected message"))
        found: dict[str, Any] = json.loads(payload)
        return found

    def close(self) -> None:
        """End the probe."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._stderr.close()

    def _next_frame(self, deadline_s: float) -> tuple[bytes, bytes]:
        while not self._answers:
            data = self._read(deadline_s)
            if not data:
                raise ProbeError(self._why_it_ended())
            self._answers += self._reader.feed(data)
        return self._answers.pop(0)

    def _read(self, deadline_s: float) -> bytes:
        assert self._process.stdout is not None
        left_s = max(0.0, deadline_s - time.monotonic())
        if not select.select([self._process.stdout], [], [], left_s)[0]:
            raise ProbeError(_no_answer("no answer in time"))
        return os.read(self._process.stdout.fileno(), _READ_BYTES)

    def _why_it_ended(self) -> HostFailure:
        try:
            code = self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            return _no_answer("the check there closed its output but kept running")
        self._stderr.seek(0)
        lines = self._stderr.read().decode(errors="replace").strip().splitlines()
        return why_no_probe(self.host, code, lines[-1].strip() if lines else "")


def why_no_probe(host: str, code: int, last_line: str) -> HostFailure:
    """Return the reason why the probe of a host did not start, by exit code and stderr. Pure.

    The code 255 is ssh's own; any other code is that of the program there.
    """
    if code == 255:
        return ssh_failure(host, last_line or "ssh failed without a message")
    if code == 127 or "No such file or directory" in last_line:
        advice = "install the same Python at the same path on every host, or share its folder"
        return HostFailure("python", f"{sys.executable} is missing", advice)
    if "No module named" in last_line or "ImportError" in last_line:
        advice = f"install hvdtune {__version__} there, in the same place as on this host"
        return HostFailure("hvdtune", f"hvdtune cannot be imported ({last_line})", advice)
    reason = f" ({last_line})" if last_line else ""
    return _no_answer(f"the check on that host exited with code {code}{reason}")


def ssh_failure(host: str, seen: str) -> HostFailure:
    """Return the failure that ssh reported, with advice. Pure."""
    known = (advice for words, advice in _SSH_ADVICE if words in seen.lower())
    advice = next(known, "run `ssh {host}` by hand and check that it logs in without a prompt")
    return HostFailure("ssh", f"ssh: {seen.strip().rstrip('.')}", advice.format(host=host))


def _no_answer(seen: str) -> HostFailure:
    return HostFailure("answer", seen, "run `hvdtune doctor` on that host")
