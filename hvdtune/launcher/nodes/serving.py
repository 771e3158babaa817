"""A node that serves the launcher on the first one: ranks run here as the launcher says."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Mapping
from typing import Final

import msgspec

from hvdtune import __version__, parse
from hvdtune.core.config.meeting_point import MeetingPoint
from hvdtune.core.job import meeting, proof, route
from hvdtune.core.job.child_command import module_command
from hvdtune.core.job.sealed import SealedChannel
from hvdtune.errors import LaunchError
from hvdtune.launcher import frames
from hvdtune.launcher.nodes.admission import Admission
from hvdtune.launcher.nodes.connections import end_with_host
from hvdtune.launcher.nodes.control import ControlConnection, NodeFacts

PART: Final = "/nodes"
_HANDSHAKE_S: Final = 5.0
_RETRY_S: Final = 0.2
# What the agents have left to say when the launcher has gone, or said that all is over.
_LAST_S: Final = 10.0


def serve(
    point: MeetingPoint, chosen: str, slots: int, timeout_s: float, asked: Mapping[str, str]
) -> int:
    """Serves until the launcher says that the command is over; returns its exit code.

    Args:
        chosen: the address of this host's that the user has chosen, "" for none.
        asked: what has to be the same on all nodes, by option; the launcher compares it.

    Raises LaunchError when the launcher does not come within the timeout, or is lost.
    """
    # The launcher has it, too, and ends the ranks; what they and it say comes through here.
    # A handler, since what is ignored is ignored by the ranks, too.
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    where, key = meeting.find_leader(point, chosen, 0, timeout_s, PART)
    leader = parse.endpoint(where)
    address = chosen or (
        leader[0] if route.is_loopback(leader[0]) else route.address_for_peers(leader[0])
    )
    number = point.place.rank or 0
    with contextlib.closing(_Agents(address, key, number)) as agents:
        control = _connected(leader, key, timeout_s, meeting.ELSEWHERE if point.is_by_port else "")
        with contextlib.closing(control):
            host = point.place.host or socket.gethostname()
            facts = NodeFacts(__version__, number, host, slots, address, agents.port, dict(asked))
            try:
                control.send(frames.HELLO, msgspec.msgpack.encode(facts))
                return int.from_bytes(control.receive(frames.EXIT, None), "big", signed=True)
            except (LaunchError, OSError) as error:
                raise LaunchError(f"the launcher on the first node: {error}") from None


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
                # Afterwards there may be nobody any more, which says less.
                unknown = f"what answers there does not know this node's key: {meeting.SAME_KEY}"
                why = unknown if refused else getattr(error, "strerror", None) or error
                raise LaunchError(
                    f"no connection with the launcher on the first node, {leader[0]} port "
                    f"{leader[1]}, within {timeout_s:g} s (--start-timeout): {why}"
                    + (advice and f"; {advice}")
                ) from None
        time.sleep(_RETRY_S)


class _Agents:
    """Listens for ranks and starts an agent for each. `close` waits for their ends, or ends them.

    Thread rule: `close` once, by the thread that made it. `_lock` guards `_running` and
    `_is_closed`.
    """

    def __init__(self, address: str, key: bytes, number: int) -> None:
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
        """Starts an agent, on a thread of its own that waits for the agent's end."""
        end_with_host(connection)
        with contextlib.closing(SealedChannel(connection, session, dialed=False)) as channel:
            with channel.local as end, self._lock:
                if self._is_closed:
                    return
                command = module_command("hvdtune.launcher.agent")
                agent = subprocess.Popen(command, stdin=end.fileno(), stdout=end.fileno())
                self._running.append(agent)
            agent.wait()
            with self._lock:
                self._running.remove(agent)
