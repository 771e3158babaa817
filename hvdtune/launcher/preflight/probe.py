"""The program of the check on each host: `python -m hvdtune.launcher.preflight.probe`.

It first writes its version, then answers questions from stdin until that ends. A question and its
answer are JSON objects in frames (`hvdtune.launcher.frames`).
"""

from __future__ import annotations

import ipaddress
import json
import os
import platform
import resource
import shutil
import socket
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import psutil

from hvdtune import __version__
from hvdtune.core.config.environment import launch_defaults
from hvdtune.core.rank.affinity import usable_processors
from hvdtune.errors import HvdtuneError
from hvdtune.launcher import frames
from hvdtune.launcher.agent import address_for_launcher
from hvdtune.launcher.frames import Frames, frame, write_all
from hvdtune.launcher.preflight.way import WayError, dial, measure, open_doors

QUESTION, ANSWER = b"Q", b"A"
_READ_BYTES: Final = 1 << 16
# Less than MOST_HALF_OPEN of `Admission`: every host is dialed by as many hosts at a time.
_DIALS_AT_A_TIME: Final = 48
_CONTAINERS: Final = {"/.dockerenv": "Docker", "/run/.containerenv": "Podman"}

Answer = dict[str, Any]


def main() -> int:
    """Serve until stdin ends."""
    write_all(1, frames.MAGIC + frame(frames.HELLO, __version__.encode()))
    reader = Frames()
    host = _Host()
    while data := os.read(0, _READ_BYTES):
        for kind, payload in reader.feed(data):
            if kind == QUESTION:
                write_all(1, frame(ANSWER, json.dumps(host.answer(json.loads(payload))).encode()))
    return 0


class _Host:
    """This host: its facts, its listeners and its connections to other hosts."""

    def __init__(self) -> None:
        self._key = b""
        self._address = ""
        self._asked: dict[str, Callable[..., Answer]] = {
            "facts": _facts,
            "clock": lambda: {"wall_ns": time.time_ns()},
            "listen": self._listen,
            "reach": self._reach,
            "measure": self._measure,
        }

    def answer(self, question: dict[str, Any]) -> Answer:
        ask = question.pop("ask")
        try:
            return self._asked[ask](**question)
        except (HvdtuneError, OSError) as error:
            return {"fault": str(getattr(error, "strerror", None) or error)}

    def _listen(
        self, number: int, key: str, address: str, launcher: str, interface: str, meeting_port: int
    ) -> Answer:
        """Listen where ranks of this host would, and at all its other addresses.

        Args:
            number: number of this host.
            address: where ranks would listen; "" for the address towards the launcher.
            launcher: an address of the launcher's host.
            interface: the chosen network interface; "" for none.
            meeting_port: a further port where ranks would listen; 0 for none.
        """
        self._key = bytes.fromhex(key)
        if not address and interface:
            address = launch_defaults({"HVDTUNE_INTERFACE": interface}).rendezvous.own_address
        self._address = address or address_for_launcher(launcher)
        interfaces = {self._address: interface, **_addresses()}
        if ipaddress.ip_address(self._address).is_loopback:
            interfaces = {self._address: "lo"}
        doors = [
            {"address": where, "port": port, "interface": interfaces[where]}
            for where, port in open_doors([*interfaces], self._key, number).items()
        ]
        fault = ""
        if meeting_port:
            try:
                open_doors([self._address], self._key, number, meeting_port)
            except OSError as error:
                fault = os.strerror(error.errno or 0)  # without the address
            else:
                doors.append({"address": self._address, "port": meeting_port, "interface": ""})
        return {
            "address": self._address,
            "doors": doors,
            "meeting_port": meeting_port,
            "meeting_fault": fault,
        }

    def _reach(self, targets: list[dict[str, Any]], timeout_s: float) -> Answer:
        """Try all doors of all targets at once."""

        def attempt(number: int, door: dict[str, Any]) -> Answer:
            try:
                where = self._on_my_link(door["address"])
                dial(where, door["port"], self._key, number, timeout_s).close()
            except WayError as error:
                return {"state": error.state, "seen": str(error)}
            return {"state": "ok", "seen": ""}

        with ThreadPoolExecutor(_DIALS_AT_A_TIME) as pool:
            tried = [
                (
                    pool.submit(_name_fault, target["name"]),
                    [pool.submit(attempt, target["number"], door) for door in target["doors"]],
                )
                for target in targets
            ]
        return {
            "targets": [
                {"name_fault": fault.result(), "doors": [door.result() for door in doors]}
                for fault, doors in tried
            ]
        }

    def _measure(self, number: int, address: str, port: int, budget_s: float) -> Answer:
        where = self._on_my_link(address)
        with dial(where, port, self._key, number, 10.0) as connection:
            return vars(measure(connection, budget_s))

    def _on_my_link(self, address: str) -> str:
        """Return the address; a link-local one of IPv6 gets this host's interface."""
        number = address.partition("%")[0]
        found = ipaddress.ip_address(number)
        own = self._address.partition("%")[2]
        return f"{number}%{own}" if found.version == 6 and found.is_link_local and own else number


def _name_fault(name: str) -> str:
    try:
        socket.getaddrinfo(name, 22, type=socket.SOCK_STREAM)
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _addresses() -> dict[str, str]:
    """Return the addresses at which others may reach this host, with their interfaces."""
    found = {}
    for name, entries in psutil.net_if_addrs().items():
        for entry in entries:
            if entry.family not in (socket.AF_INET, socket.AF_INET6):
                continue
            address = ipaddress.ip_address(entry.address.partition("%")[0])
            if not address.is_loopback and not address.is_link_local:
                found[str(address)] = name
    return found


def _facts() -> Answer:
    affinity = sorted(os.sched_getaffinity(0))
    usable, native_fault = len(affinity), ""
    try:
        usable = usable_processors()
    except ImportError as error:
        native_fault = str(error)
    total, free = _shared_memory()
    soft, hard = (_limit(each) for each in resource.getrlimit(resource.RLIMIT_NOFILE))
    return {
        "python": platform.python_version(),
        "hostname": socket.gethostname(),
        "container": _container(),
        "shm_total_bytes": total,
        "shm_free_bytes": free,
        "memory_file_fault": _memory_file_fault(),
        "open_files": soft,
        "open_files_limit": hard,
        "locked_bytes": _limit(resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]),
        "processors": os.cpu_count() or len(affinity),
        "usable": usable,
        "affinity": affinity,
        "native_fault": native_fault,
    }


def _shared_memory() -> Sequence[int]:
    try:
        usage = shutil.disk_usage("/dev/shm")
    except OSError:
        return -1, -1
    return usage.total, usage.free


def _memory_file_fault() -> str:
    try:
        os.close(os.memfd_create("hvdtune-preflight"))
    except OSError as error:
        return str(error.strerror)
    return ""


def _limit(value: int) -> int | None:
    return None if value == resource.RLIM_INFINITY else value


def _container() -> str:
    for mark, name in _CONTAINERS.items():
        if Path(mark).exists():
            return name
    with suppress(OSError):
        if "kubepods" in Path("/proc/1/cgroup").read_text():
            return "Kubernetes"
    return ""


if __name__ == "__main__":
    sys.exit(main())
