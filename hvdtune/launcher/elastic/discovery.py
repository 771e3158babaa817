"""Which hosts there are, asked again and again of the user's script."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Mapping
from typing import Final

from hvdtune.core.config.environment import own_environ
from hvdtune.core.job.child_command import process_group
from hvdtune.errors import LaunchError, UsageError
from hvdtune.launcher.hosts import Host, parse_discovered

# Between two runs of the script.
_INTERVAL_S: Final = 1.0
# A script that takes longer is ended and tried again.
_SCRIPT_S: Final = 30.0


class FixedHosts:
    """Hosts that are known from the start."""

    is_fixed = True

    def __init__(self, hosts: tuple[Host, ...]) -> None:
        self.found: Mapping[str, int] = {host.name: host.slots for host in hosts}

    def take_remark(self) -> str:
        return ""

    def close(self) -> None:
        """Nothing is to be ended."""


class DiscoveryScript:
    """Runs a command of the user's every second; it prints a line `host` or `host:slots` for each.

    A run that fails later, or prints what is no host, changes nothing.

    Thread rule: `found` may be read by any thread, and is replaced as a whole; `_lock` guards
    `_remark` and `_running`. The rest belongs to the thread that made it.
    """

    is_fixed = False

    def __init__(self, command: str, slots: int) -> None:
        """Runs it for the first time. `slots` are those of a host without a number.

        Raises LaunchError when it fails, UsageError when it prints what is no host.
        """
        self._command, self._slots = command, slots
        self._lock = threading.Lock()
        self._remark = ""
        self._running: subprocess.Popen[str] | None = None
        self._closing = threading.Event()
        self.found: Mapping[str, int] = self._ask()
        self._thread = threading.Thread(target=self._repeat, name="hvdtune-discovery", daemon=True)
        self._thread.start()

    def take_remark(self) -> str:
        """What was wrong with a run since the last call, "" for nothing."""
        with self._lock:
            remark, self._remark = self._remark, ""
            return remark

    def close(self) -> None:
        """Ends the script that runs, if one does."""
        self._closing.set()
        with self._lock:
            if self._running is not None:
                self._running.kill()
        self._thread.join()

    def _repeat(self) -> None:
        failed = ""
        while not self._closing.wait(_INTERVAL_S):
            try:
                self.found = self._ask()
                failed = ""
            except (LaunchError, UsageError) as error:
                with self._lock:
                    # Once, not every second.
                    self._remark = str(error) if str(error) != failed else self._remark
                failed = str(error)

    def _ask(self) -> dict[str, int]:
        name = f"--host-discovery-script {self._command}"
        with self._lock:
            if self._closing.is_set():
                raise LaunchError(f"{name} was ended")
            try:
                script = self._running = subprocess.Popen(
                    ["/bin/sh", "-c", self._command],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    text=True,
                    env=own_environ(),
                    **process_group(0),
                )
            except OSError as error:
                raise LaunchError(f"{name} cannot be started: {error.strerror}") from None
        with script:
            try:
                text, _ = script.communicate(timeout=_SCRIPT_S)
            except subprocess.TimeoutExpired:
                script.kill()
                raise LaunchError(f"{name} took longer than {_SCRIPT_S:g} s") from None
            finally:
                with self._lock:
                    self._running = None
        if script.returncode != 0:
            raise LaunchError(f"{name} failed with exit code {script.returncode}")
        return {host.name: host.slots for host in parse_discovered(text, self._slots)}


Discovery = FixedHosts | DiscoveryScript
