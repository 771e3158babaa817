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

from hvdtune import __version__, parse
from hvdtune.core.config.dialect import ToldPlace
from hvdtune.core.config.meeting_point import MeetingPoint
from hvdtune.core.job import meeting, proof, route
from hvdtune.core.job.job_file import OfferedError
from hvdtune.errors import LaunchError
from hvdtune.launcher import frames
from hvdtune.launcher.hosts import Host, first_spellings, is_local
from hvdtune.launcher.nodes.admission import Admission
from hvdtune.launcher.nodes.control import ControlConnection, NodeFacts
from hvdtune.launcher.nodes.serving import PART
from hvdtune.launcher.nodes.way import NodeWay
from hvdtune.launcher.spawn import sealed_file
from hvdtune.plural import counted

_HELLO_S: Final = 5.0
# Another launcher of this job answers in a round trip; another program may say nothing.
_TWIN_S: Final = 2.0
# A connection and its session key.
_Proved = tuple[socket.socket, bytes]
_Found = tuple[NodeFacts, ControlConnection]


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

    Raises LaunchError when a node does not come within the timeout, was asked for something else,
    or has the number of another.
    """
    how = meeting.opening(point, chosen, 0, PART)
    own = point.place.host
    own = own if is_local(own) else socket.gethostname()
    itself = NodeFacts(__version__, proof.FIRST, own, slots, how.bind_host, how.port, dict(asked))
    with contextlib.ExitStack() as stack:
        found = _meet(_Roll(point.place, itself, stack), how, timeout_s)
        key_fd = stack.enter_context(sealed_file("hvdtune-node-key", how.key))
        hosts = [Host(own, slots)]
        ways: dict[str, NodeWay] = {}
        for facts, _ in found:
            name = facts.host
            known = first_spellings((own, *ways))
            if name.lower() in known or not _is_known(name):
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
                f"first node {_with(what, ours)}: start `hvdtune run` with the same words and "
                "variables on all nodes"
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


class _Roll:
    """The nodes that have come, by their numbers. Their connections end with the stack."""

    def __init__(self, place: ToldPlace, itself: NodeFacts, stack: contextlib.ExitStack) -> None:
        self.itself, self.size = itself, place.size or 1
        self._told_by, self._stack = place.told_by, stack
        self.told = (
            f"{place.title} says that there are {counted(self.size, 'node')}, by {place.told_by}"
        )
        self._controls: list[ControlConnection] = []
        self._found: dict[int, _Found] = {}

    @property
    def missing(self) -> list[int]:
        return [number for number in range(1, self.size) if number not in self._found]

    def found(self) -> list[_Found]:
        return [self._found[number] for number in sorted(self._found)]

    def add(self, proved: _Proved) -> None:
        """Raises LaunchError for one that cannot be a node of this command."""
        control = ControlConnection(*proved, dialed=False)
        self._stack.callback(control.close)
        self._controls.append(control)
        facts = _facts(control)
        number = facts.number
        if number >= self.size:
            raise LaunchError(
                f"node {number}, {facts.host}, is none of {counted(self.size, 'node')}, by "
                f"{self._told_by}: tell all nodes the same number of nodes, and number them from 0"
            )
        if number in (proof.FIRST, *self._found):
            other = self._found[number][0] if number in self._found else self.itself
            raise LaunchError(
                f"two processes say that they are node {number} of {self.size}, by "
                f"{self._told_by}: one on {other.host} and one on {facts.host}; give each "
                "node a number of its own"
            )
        require_same(facts, self.itself.asked)
        self._found[number] = facts, control

    def refuse(self, why: str) -> None:
        """Tells all that have come."""
        for control in self._controls:
            with contextlib.suppress(OSError):  # it has gone
                control.send(frames.REFUSED, why.encode())


def _meet(roll: _Roll, how: meeting.Opening, timeout_s: float) -> list[_Found]:
    """The other nodes, in the order of their numbers."""
    family = socket.AF_INET6 if ":" in how.bind_host else socket.AF_INET
    try:
        listener = _listener(how.bind_host, how.port, family)
    except LaunchError as taken:
        said = _said_to_a_second((how.bind_host, how.port), how.key, roll.itself)
        raise LaunchError(said or str(taken)) from None
    port = listener.getsockname()[1]
    came: queue.SimpleQueue[_Proved] = queue.SimpleQueue()
    admission = Admission(
        listener, how.key, proof.CONTROL, proof.FIRST, lambda *proved: came.put(proved)
    )
    where = f"[{how.bind_host}]" if family == socket.AF_INET6 else how.bind_host
    try:
        with contextlib.closing(admission), how.offered(f"{where}:{port}"):
            _await_nodes(roll, came, admission, timeout_s, f"{where}:{port}{_found_by(how)}")
        while not came.empty():  # in the moment before the door was closed
            roll.add(came.get())
    except OfferedError as first:
        key = how.key if how.is_key_known else first.offer.key
        said = _said_to_a_second(parse.endpoint(first.offer.address), key, roll.itself)
        raise LaunchError(
            said or f"another process of this job listens at {first.offer.address} already"
        ) from None
    except LaunchError as error:
        roll.refuse(str(error))
        raise
    return roll.found()


def _said_to_a_second(address: tuple[str, int], key: bytes, itself: NodeFacts) -> str:
    """What the first node says, as which this one came, too; "" where none is at this address."""
    try:
        proved = proof.dial(address, key, proof.CONTROL, proof.FIRST, _TWIN_S)
    except (OSError, LaunchError):
        return ""
    with contextlib.closing(ControlConnection(*proved, dialed=True)) as control:
        try:
            control.send(frames.HELLO, msgspec.msgpack.encode(itself))
            control.receive(frames.EXIT, _HELLO_S)
        except (OSError, LaunchError) as error:
            return f"the launcher on the first node: {error}"
    return ""


def _found_by(how: meeting.Opening) -> str:
    return f", as {how.file.path} says" if how.file is not None else ""


def _await_nodes(
    roll: _Roll,
    came: queue.SimpleQueue[_Proved],
    admission: Admission,
    timeout_s: float,
    where: str,
) -> None:
    """Returns when all are there. `where` this node listens is for the message."""
    deadline_s = time.monotonic() + timeout_s
    while roll.missing:
        try:
            proved = came.get(timeout=max(0.001, deadline_s - time.monotonic()))
        except queue.Empty:
            missing = ", ".join(map(str, roll.missing))
            other = admission.unproved
            why = f"; who connected from {other} has another key: {meeting.SAME_KEY}"
            raise LaunchError(
                f"no word from node {missing} of {roll.size} within {timeout_s:g} s "
                f"(--start-timeout); this node listens at {where}{why if other else ''} "
                f"({roll.told}; {meeting.ALONE})"
            ) from None
        roll.add(proved)


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
