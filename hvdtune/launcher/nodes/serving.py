"""A node that serves the launcher on the first node: it runs ranks for that launcher."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Sequence
from typing import Final

import msgspec

from hvdtune import __version__, parse
from hvdtune.core.job import meeting, proof, route
from hvdtune.core.job.child_command import module_command
from hvdtune.core.job.records import RecordChannel
from hvdtune.errors import LaunchError
from hvdtune.launcher import frames
from hvdtune.launcher.nodes.admission import Admission
from hvdtune.launcher.nodes.connections import end_with_host
from hvdtune.launcher.nodes.control import ControlConnection, NodeFacts, NodeTerms, digests
from hvdtune.launcher.spawn import sealed_file

PART: Final = "/nodes"
_HANDSHAKE_S: Final = 5.0
_RETRY_S: Final = 0.2
# How long agents may still send data after the launcher's end.
_LAST_S: Final = 10.0


def serve(terms: NodeTerms, command: Sequence[str]) -> int:
    """Serve until the launcher's job has ended; return its exit code.

    Args:
        command: the argument vector of a rank.

    Raises:
        LaunchError: the launcher does not answer within the timeout, or its connection ends.
    """
    # The launcher gets SIGTERM, too, and ends the ranks. A handler, because ranks would inherit
    # an ignored signal.
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    point, chosen, timeout_s = terms.point, terms.chosen, terms.timeout_s
    offer = meeting.board_of(point, chosen, 0, PART).await_offer(timeout_s)
    leader, key = parse.endpoint(offer.address), offer.key
    address = chosen or (
        leader[0] if route.is_loopback(leader[0]) else route.address_for_peers(leader[0])
    )
    number = point.place.rank or 0
    with contextlib.closing(_Agents(address, key, number, command)) as agents:
        control = _connected(leader, key, timeout_s, meeting.ELSEWHERE if point.is_by_port else "")
        with contextlib.closing(control):
            host = point.place.host or socket.gethostname()
            same = digests(key, terms.asked)
            facts = NodeFacts(__version__, number, host, terms.slots, address, agents.port, same)
            try:
                control.send(frames.HELLO, msgspec.msgpack.encode(facts))
                return int.from_bytes(control.receive(frames.EXIT, None), "big", signed=True)
            except (LaunchError, OSError) as error:
                raise LaunchError(f"The launcher on the first node: {error}") from None


def _connected(
    leader: tuple[str, int], key: bytes, timeout_s: float, advice: str
) -> ControlConnection:
    deadline_s = time.monotonic() + timeout_s
    refused = False
    while True:
        try:
            proved = proof.dial(leader, key, proof.CONTROL, proof.FIRST, _HANDSHAKE_S)
            return ControlConnection(*proved, dialed=True)
        except (OSError, LaunchError) as error:
            refused = refused or isinstance(error, LaunchError)
            if time.monotonic() > deadline_s:
                # An earlier refusal is more specific than a later "connection refused".
                unknown = f"the process there has a different key ({meeting.SAME_KEY})"
                why = unknown if refused else getattr(error, "strerror", None) or error
                raise LaunchError(
                    f"Cannot connect to the launcher on the first node ({leader[0]} port "
                    f"{leader[1]}) within {timeout_s:g} s (--start-timeout): {why}."
                    + (advice and f" {advice}.")
                ) from None
        time.sleep(_RETRY_S)


class _Agents:
    """Listens for relays and starts an agent for each. `close` waits for the agents or kills them.

    Thread rule: the thread that made it calls `close`, once. `_lock` guards `_running` and
    `_is_closed`.
    """

    def __init__(self, address: str, key: bytes, number: int, command: Sequence[str]) -> None:
        self._key, self._command = key, command
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        listener = socket.create_server((address, 0), family=family, backlog=128)
        self.port = int(listener.getsockname()[1])
        self._lock = threading.Lock()
        self._running: list[subprocess.Popen[bytes]] = []
        self._is_closed = False
        self._admission = Admission(listener, key, proof.RANK, number, self._start)

    def close(self) -> None:
        self._admission.close()
        deadline_s = time.monotonic() + _LAST_S
        with self._lock:
            self._is_closed = True
            running = list(self._running)
        for agent in running:
            try:
                agent.wait(max(0.0, deadline_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                agent.kill()  # its guard ends the rank
                agent.wait()

    def _start(self, connection: socket.socket, session: bytes) -> None:
        """Start an agent and wait for its end; runs on its own thread."""
        end_with_host(connection)
        with contextlib.closing(RecordChannel(connection, session, dialed=False)) as channel:
            with (
                channel.local as end,
                sealed_file("hvdtune-node-key", self._key) as key_fd,
                self._lock,
            ):
                if self._is_closed:
                    return
                words = (str(key_fd), *self._command)
                agent = subprocess.Popen(
                    [*module_command("hvdtune.launcher.agent"), *words],
                    stdin=end.fileno(),
                    stdout=end.fileno(),
                    pass_fds=[key_fd],
                )
                self._running.append(agent)
            agent.wait()
            with self._lock:
                self._running.remove(agent)
