"""The launcher on the first node: it gathers the other nodes that a scheduler has started."""

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
from hvdtune.core.config.dialect import LauncherPlace
from hvdtune.core.job import meeting, proof, route
from hvdtune.core.job.meeting import PointBoard
from hvdtune.core.job.rendezvous import Board, Offer, Opening, TakenError
from hvdtune.errors import HvdtuneError, LaunchError
from hvdtune.launcher import frames
from hvdtune.launcher.hosts import Host, first_spellings, is_local
from hvdtune.launcher.nodes.admission import Admission
from hvdtune.launcher.nodes.control import ControlConnection, NodeFacts, NodeTerms, digests
from hvdtune.launcher.nodes.serving import PART
from hvdtune.launcher.nodes.way import NodeWay
from hvdtune.launcher.spawn import sealed_file
from hvdtune.plural import counted

_HELLO_S: Final = 5.0
# Limit for the answer of another launcher of this job; another program may not answer.
_TWIN_S: Final = 2.0
# A connection and its session key.
_Proved = tuple[socket.socket, bytes]
_Found = tuple[NodeFacts, ControlConnection]


@dataclass
class Nodes:
    """The nodes of a job.

    Attributes:
        hosts: the launcher's own first.
        ways: how each other host is reached.
        exit_code: of all nodes; set it before the block ends.
    """

    hosts: tuple[Host, ...]
    ways: dict[str, NodeWay]
    exit_code: int = 1


@contextlib.contextmanager
def gathered(terms: NodeTerms) -> Iterator[Nodes]:
    """Connect to all nodes while the block runs. Its HvdtuneError gives them its exit code.

    Raises:
        LaunchError: a node does not connect within the timeout, has other options, or has the
            number of another node.
    """
    place, slots = terms.point.place, terms.slots
    board = meeting.board_of(terms.point, terms.chosen, 0, PART)
    how = board.opening()
    own = place.host
    own = own if is_local(own) else socket.gethostname()
    asked = dict(terms.asked)
    itself = NodeFacts(__version__, proof.FIRST, own, slots, how.bind_host, how.port, asked)
    with contextlib.ExitStack() as stack:
        found = _meet(_Roll(place, itself, how.key, stack), board, how, terms.timeout_s)
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
        except HvdtuneError as error:
            nodes.exit_code = error.exit_code
            raise
        finally:
            farewell = nodes.exit_code.to_bytes(4, "big", signed=True)
            for _, control in found:
                with contextlib.suppress(OSError):  # the node has exited
                    control.send(frames.EXIT, farewell)


def require_same(facts: NodeFacts, asked: Mapping[str, str], key: bytes) -> None:
    """Raise LaunchError if a node has other options than this one.

    Args:
        key: of the digests that the node has sent.
    """
    own = digests(key, asked)
    for what in sorted({*own, *facts.asked}):
        if facts.asked.get(what) != own.get(what):
            theirs = (
                f"without {what}"
                if what not in facts.asked
                else f"with another {what.removeprefix('the ')}"
            )
            ours = f"with {what} {asked[what]}".rstrip() if what in asked else f"without {what}"
            if what not in asked:
                theirs = f"with {what}"
            raise LaunchError(
                f"Node {facts.number} ({facts.host}) was started {theirs}; the first node was "
                f"started {ours}. Start `hvdtune run` with the same arguments and environment "
                "variables on all nodes."
            )


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
            f"The launcher cannot listen on {host} port {port}, where the other nodes connect: "
            f"{error.strerror}. Set HVDTUNE_RENDEZVOUS_PORT to another port on all nodes."
        ) from None


class _Roll:
    """The nodes that have connected, by their numbers. Their connections end with the stack."""

    def __init__(
        self, place: LauncherPlace, itself: NodeFacts, key: bytes, stack: contextlib.ExitStack
    ) -> None:
        self.itself, self.size = itself, place.size or 1
        self._variables, self._key, self._stack = place.source, key, stack
        self.source = f"{place.title} set {counted(self.size, 'node')} by {place.source}"
        self._controls: list[ControlConnection] = []
        self._found: dict[int, _Found] = {}

    @property
    def missing(self) -> list[int]:
        return [number for number in range(1, self.size) if number not in self._found]

    def found(self) -> list[_Found]:
        return [self._found[number] for number in sorted(self._found)]

    def add(self, proved: _Proved) -> None:
        """Add a connection. Raises LaunchError if it cannot be a node of this job."""
        control = ControlConnection(*proved, dialed=False)
        self._stack.callback(control.close)
        self._controls.append(control)
        facts = _facts(control)
        number = facts.number
        if number >= self.size:
            raise LaunchError(
                f"Node {number} ({facts.host}) is out of range: {self._variables} set "
                f"{counted(self.size, 'node')}, numbered 0 to {self.size - 1}. Set the same number "
                "of nodes on all of them."
            )
        if number in (proof.FIRST, *self._found):
            other = self._found[number][0] if number in self._found else self.itself
            raise LaunchError(
                f"Two processes have the number {number} of {counted(self.size, 'node')} "
                f"({self._variables}): one on {other.host} and one on {facts.host}. Give each node "
                "its own number."
            )
        require_same(facts, self.itself.asked, self._key)
        self._found[number] = facts, control

    def refuse(self, why: str) -> None:
        """Send the reason to all nodes that have connected."""
        for control in self._controls:
            with contextlib.suppress(OSError):  # the node has exited
                control.send(frames.REFUSED, why.encode())


def _meet(roll: _Roll, board: PointBoard, how: Opening, timeout_s: float) -> list[_Found]:
    """Return the other nodes, in the order of their numbers."""
    family = socket.AF_INET6 if ":" in how.bind_host else socket.AF_INET
    try:
        listener = _listener(how.bind_host, how.port, family)
    except LaunchError as taken:
        raise LaunchError(_refusal_of_first(board, roll.itself) or str(taken)) from None
    came: queue.SimpleQueue[_Proved] = queue.SimpleQueue()
    admission = Admission(
        listener, how.key, proof.CONTROL, proof.FIRST, lambda *proved: came.put(proved)
    )
    offer = Offer(route.endpoint(how.bind_host, listener.getsockname()[1]), how.key)
    where = offer.address + (f", from {board.path}" if board.path else "")
    try:
        with contextlib.closing(admission), board.posted(offer):
            _await_nodes(roll, came, admission, timeout_s, where)
        while not came.empty():  # in the moment before the listener was closed
            roll.add(came.get())
    except TakenError as first:
        raise LaunchError(_refusal_of_first(board, roll.itself) or f"{first}.") from None
    except LaunchError as error:
        roll.refuse(str(error))
        raise
    return roll.found()


def _refusal_of_first(board: Board, itself: NodeFacts) -> str:
    """Return the error of the first node if this process has the same number; "" without one."""
    try:
        offer = board.await_offer(_TWIN_S)
        proved = proof.dial(
            parse.endpoint(offer.address), offer.key, proof.CONTROL, proof.FIRST, _TWIN_S
        )
    except (OSError, HvdtuneError):
        return ""
    with contextlib.closing(ControlConnection(*proved, dialed=True)) as control:
        try:
            facts = msgspec.structs.replace(itself, asked=digests(offer.key, itself.asked))
            control.send(frames.HELLO, msgspec.msgpack.encode(facts))
            control.receive(frames.EXIT, _HELLO_S)
        except (OSError, LaunchError) as error:
            return f"The launcher on the first node: {error}"
    return ""


def _await_nodes(
    roll: _Roll,
    came: queue.SimpleQueue[_Proved],
    admission: Admission,
    timeout_s: float,
    where: str,
) -> None:
    """Return when all nodes have connected. `where` is this node's address for the message."""
    deadline_s = time.monotonic() + timeout_s
    while roll.missing:
        try:
            proved = came.get(timeout=max(0.001, deadline_s - time.monotonic()))
        except queue.Empty:
            missing = ", ".join(map(str, roll.missing))
            other = admission.unproved
            why = f" A process on {other} connected with another key ({meeting.SAME_KEY})."
            raise LaunchError(
                f"Node {missing} of {roll.size} did not connect within {timeout_s:g} s "
                f"(--start-timeout). This node listens on {where}; {roll.source}."
                f"{why if other else ''} To run this process alone, set HVDTUNE_STARTED_BY=none."
            ) from None
        roll.add(proved)


def _facts(control: ControlConnection) -> NodeFacts:
    try:
        facts = msgspec.msgpack.decode(control.receive(frames.HELLO, _HELLO_S), type=NodeFacts)
    except msgspec.MsgspecError as error:
        raise LaunchError(
            f"A node uses an incompatible version ({error}). Install hvdtune {__version__} on "
            "every node."
        ) from None
    if facts.version != __version__:
        raise LaunchError(
            f"Node {facts.number} ({facts.host}) has hvdtune {facts.version}, this one has "
            f"{__version__}. Install the same version on both."
        )
    return facts
