"""Which hosts there are, asked again and again of the user's script."""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from hvdtune.core.config.environment import own_environ
from hvdtune.errors import ArgumentError, LaunchError, UsageError
from hvdtune.launcher.hosts import Host, first_spellings, parse_discovered
from hvdtune.launcher.spawn import ProcessGroup

# Between two runs of the script.
_INTERVAL_S: Final = 1.0
# A script that takes longer is ended and tried again.
_SCRIPT_S: Final = 30.0
# One that takes longer is spoken of.
_LATE_S: Final = 5.0

# What a shell means by them
_KNOWN_CODES: Final = {
    126: ": a file that is not executable (chmod +x)",
    127: ": a command that was not found",
}


class SlowScriptError(LaunchError):
    """The script took too long."""


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

    A run that fails later, takes too long or prints what is no host, changes nothing. What it has
    started in its process group ends with one that takes too long, and with the job at the latest.

    Thread rule: `found` may be read by any thread, and is replaced as a whole; `_lock` guards
    `_remark` and `_group`. The rest belongs to the thread that made it.
    """

    is_fixed = False

    def __init__(self, command: str, slots: int, warn: Callable[[str], None]) -> None:
        """Runs it for the first time.

        Args:
            slots: those of a host without a number.
            warn: takes a sentence about this first run, where it takes long.

        Raises LaunchError when it fails, UsageError when it cannot run or prints what is no host.
        """
        self._command, self._slots = command, slots
        self._lock = threading.Lock()
        self._remark = ""
        self._group: ProcessGroup | None = None
        self._closing = threading.Event()
        self.found: Mapping[str, int] = {}
        try:
            self.found = self._ask(warn)
        except BaseException:
            self._end_processes()
            raise
        self._thread = threading.Thread(target=self._repeat, name="hvdtune-discovery", daemon=True)
        self._thread.start()

    def take_remark(self) -> str:
        """What was wrong with a run since the last call, "" for nothing."""
        with self._lock:
            remark, self._remark = self._remark, ""
            return remark

    def close(self) -> None:
        """Ends the script that runs, if one does, and what it has started."""
        self._closing.set()
        self._end_processes()
        self._thread.join()

    def _repeat(self) -> None:
        said = ""

        def warn(sentence: str) -> None:
            nonlocal said
            if sentence != said:  # once, not every time
                said = sentence
                with self._lock:
                    self._remark = f"{sentence}; the hosts stay as they were"

        while not self._closing.wait(_INTERVAL_S):
            try:
                self.found = self._ask(warn)
                said = ""
            except ArgumentError as error:
                warn(error.words({"host_discovery_script": "--host-discovery-script"}))
            except SlowScriptError:
                pass  # which was said when it was late
            except (LaunchError, UsageError) as error:
                warn(str(error))
            except Exception as error:  # as out of memory; the next run may succeed
                warn(f"--host-discovery-script failed: {type(error).__name__}: {error}")

    def _ask(self, warn: Callable[[str], None]) -> dict[str, int]:
        name = f"--host-discovery-script {self._command}"
        script = self._start(name)
        with script:
            try:
                text = self._output_of(script, name, warn)
            except subprocess.TimeoutExpired:
                self._end_processes()
                raise SlowScriptError(
                    f"{name} took longer than {_SCRIPT_S:g} s, and was ended"
                ) from None
        if script.returncode != 0:
            why = _KNOWN_CODES.get(script.returncode, "")
            kind = UsageError if why else LaunchError
            raise kind(f"{name} failed with exit code {script.returncode}{why}")
        found = parse_discovered(text, self._slots)
        spelled = first_spellings((*self.found, *(host.name for host in found)))
        return {spelled[host.name.lower()]: host.slots for host in found}

    def _start(self, name: str) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._closing.is_set():
                raise LaunchError(f"{name} was ended")
            if self._group is None:
                self._group = ProcessGroup()
            command = _with_path(self._command)
            return self._group.start(("/bin/sh", "-c", command), own_environ(), (), stderr=None)

    def _output_of(
        self, script: subprocess.Popen[bytes], name: str, warn: Callable[[str], None]
    ) -> str:
        """What it prints. Raises TimeoutExpired when it takes too long."""
        try:
            text, _ = script.communicate(timeout=_LATE_S)
        except subprocess.TimeoutExpired:
            warn(f"{name} has run for {_LATE_S:g} s and will be ended after {_SCRIPT_S:g} s")
            text, _ = script.communicate(timeout=_SCRIPT_S - _LATE_S)
        return text.decode(errors="replace")

    def _end_processes(self) -> None:
        with self._lock:
            if self._group is not None:
                self._group.kill()
                self._group = None


def _with_path(command: str) -> str:
    """Return the command with `./` where it names a script of this folder without a path.

    Horovod's documentation names its scripts so. A program on PATH comes first.
    """
    name = command.split(maxsplit=1)[0] if command.strip() else ""
    is_here = name != "" and "/" not in name and Path(name).is_file()
    return f"./{command.lstrip()}" if is_here and shutil.which(name) is None else command


Discovery = FixedHosts | DiscoveryScript
