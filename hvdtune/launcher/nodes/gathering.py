"""The launcher's end: the nodes that a scheduler has started beside it, and their farewell."""

from __future__ import annotations

import contextlib
import queue
import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from hvdtune import __version__
from hvdtune.core.config.meeting_point import MeetingPoint
from hvdtune.core.job import meeting, route
from hvdtune.errors import LaunchError
from hvdtune.launcher import frames
from hvdtune.launcher.hosts import Host, is_local
from hvdtune.launcher.nodes import proof
from hvdtune.launcher.nodes.admission import Admission
from hvdtune.launcher.nodes.control import ControlConnection, NodeFacts
from hvdtune.launcher.nodes.serving import PART
from hvdtune.launcher.nodes.way import NodeWay
from hvdtune.launcher.spawn import sealed_file

_HELLO_S: Final = 5.0
# A connection and its session key.
_Proved = tuple[socket.socket, bytes]


@dataclass
class Nodes:
    """The nodes of a command, the launcher's own first.

    `ways` has one for each other host. Set `exit_code` before the block ends: it is what the other
    nodes exit with.
    """

    hosts: tuple[Host, ...]
    ways: dict[str, NodeWay]
    exit_code: int = 1


@contextlib.contextmanager
def gathered(
    point: MeetingPoint, chosen: str, slots: int, timeout_s: float, asked: Mapping[str, str]
) -> Iterator[Nodes]:
    """All nodes, while the block runs.

    Args:
        chosen: the address of this host's that the user has chosen, "" for none.
        slots: of this node.
        asked: what has to be the same on all nodes, by option.

    Raises LaunchError when a node does not come within the timeout, or was asked for something
    else.
    """
    how = meeting.opening(point, chosen, 0, PART)
    family = socket.AF_INET6 if ":" in how.bind_host else socket.AF_INET
    with contextlib.ExitStack() as stack:
        listener = _listener(how.bind_host, how.port, family)
        port = listener.getsockname()[1]
        came: queue.SimpleQueue[_Proved] = queue.SimpleQueue()
        admission = Admission(
            listener, how.key, proof.CONTROL, proof.FIRST, lambda *proved: came.put(proved)
        )
        where = f"[{how.bind_host}]" if family == socket.AF_INET6 else how.bind_host
        with contextlib.closing(admission), how.offered(f"{where}:{port}"):
            found = _await_nodes(came, (point.place.size or 1) - 1, timeout_s, stack)
        for facts, _ in found:
            require_same(facts, asked)
        key_fd = stack.enter_context(sealed_file("hvdtune-node-key", how.key))
        own = point.place.host
        own = own if is_local(own) else socket.gethostname()
        hosts, ways = [Host(own, slots)], {}
        for facts, _ in found:
            name = facts.host
            if name == own or name in ways or not _is_known(name):
                name = facts.address
            hosts.append(Host(name, facts.slots))
            ways[name] = NodeWay(facts.number, facts.address, facts.port, key_fd)
        nodes = Nodes(tuple(hosts), ways)
        try:
            yield nodes
        finally:
            farewell = nodes.exit_code.to_bytes(4, "big", signed=True)
            for _, control in found:
                with contextlib.suppress(OSError):  # it has gone
                    control.send(frames.EXIT, farewell)


def require_same(facts: NodeFacts, asked: Mapping[str, str]) -> None:
    """Raises LaunchError where a node was asked for something else than this one."""
    for what in sorted({*asked, *facts.asked}):
        theirs, ours = (each.get(what) for each in (facts.asked, asked))
        if theirs != ours:
            raise LaunchError(
                f"node {facts.number}, {facts.host}, was started {_with(what, theirs)}, and the "
                f"first node {_with(what, ours)}: start `hvdtune run` with the same words on all "
                "nodes"
            )


def _with(what: str, value: str | None) -> str:
    return f"without {what}" if value is None else f"with {what} {value}".rstrip()


def _is_known(name: str) -> bool:
    try:
        return bool(route.addresses_of(name))
    except OSError:
        return False


def _listener(host: str, port: int, family: socket.AddressFamily) -> socket.socket:
    try:
        return socket.create_server((host, port), family=family, backlog=128)
    except OSError as error:
        raise LaunchError(
            f"the launcher cannot listen at {host} port {port}, where the other nodes look for it: "
            f"{error.strerror}; HVDTUNE_RENDEZVOUS_PORT, the same on all nodes, names another port"
        ) from None


def _await_nodes(
    came: queue.SimpleQueue[_Proved],
    count: int,
    timeout_s: float,
    stack: contextlib.ExitStack,
) -> list[tuple[NodeFacts, ControlConnection]]:
    """The nodes in the order of their numbers."""
    deadline_s = time.monotonic() + timeout_s
    found: dict[int, tuple[NodeFacts, ControlConnection]] = {}
    while len(found) < count:
        try:
            connection, session = came.get(timeout=max(0.001, deadline_s - time.monotonic()))
        except queue.Empty:
            missing = ", ".join(str(n) for n in range(1, count + 1) if n not in found)
            raise LaunchError(
                f"no word from node {missing} of {count + 1} within {timeout_s:g} s "
                "(--start-timeout)"
            ) from None
        control = ControlConnection(connection, session, dialed=False)
        stack.callback(control.close)
        facts = _facts(control)
        if not 0 < facts.number <= count or facts.number in found:
            raise LaunchError(f"there are two nodes of number {facts.number}, or too many")
        found[facts.number] = facts, control
    return [found[number] for number in sorted(found)]


def _facts(control: ControlConnection) -> NodeFacts:
    try:
        told = msgspec.msgpack.decode(control.receive(frames.HELLO, _HELLO_S), type=NodeFacts)
    except msgspec.MsgspecError as error:
        raise LaunchError(
            f"a node says something else than hvdtune {__version__} does ({error}): install the "
            "same version on all of them"
        ) from None
    if told.version != __version__:
        raise LaunchError(
            f"node {told.number}, {told.host}, has hvdtune {told.version}, this one has "
            f"{__version__}: install the same"
        )
    return told
