"""What strangers do to a listening socket. Each attack goes on until `stop` is set.

An attack yields what it heard from each connection before the other end closed it.
"""

import hashlib
import hmac
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

NONCE_BYTES = 32
ANSWER_S = 10.0
Address = tuple[str, int]
Attack = Callable[[Address, bytes, threading.Event], Iterator[bytes]]


def hear(peer: socket.socket) -> bytes:
    """All bytes until the other end closes."""
    heard = b""
    with suppress(ConnectionResetError):
        while data := peer.recv(4096):
            heard += data
    return heard


def connect(address: Address) -> socket.socket | None:
    """None once nobody listens there."""
    try:
        return socket.create_connection(address, timeout=ANSWER_S)
    except ConnectionRefusedError:
        return None


def say(what: bytes) -> Attack:
    """Says the same on one connection after the other."""

    def attack(address: Address, recorded: bytes, stop: threading.Event) -> Iterator[bytes]:
        while not stop.wait(0.02) and (peer := connect(address)):
            with peer, suppress(BrokenPipeError, ConnectionResetError):
                peer.sendall(what)
                yield hear(peer)

    return attack


def replay(address: Address, recorded: bytes, stop: threading.Event) -> Iterator[bytes]:
    yield from say(recorded)(address, recorded, stop)


def wrong_key(address: Address, recorded: bytes, stop: threading.Event) -> Iterator[bytes]:
    """The right protocol, as whoever the recorded greeting is from."""
    while not stop.wait(0.02) and (peer := connect(address)):
        with peer, suppress(BrokenPipeError, ConnectionResetError):
            hello = recorded[:20] + os.urandom(32)
            peer.sendall(hello)
            nonce = peer.recv(NONCE_BYTES, socket.MSG_WAITALL)
            proof = hmac.digest(bytes(32), b"hvdtune dialer  " + hello + nonce, hashlib.sha256)
            peer.sendall(proof)
            yield nonce + hear(peer)


def hold(connections: int, first: int, pace_s: float | None = None) -> Attack:
    """Keeps connections on which `first` bytes of a true greeting were said, then one per pace."""

    def attack(address: Address, recorded: bytes, stop: threading.Event) -> Iterator[bytes]:
        with ExitStack() as stack:
            peers = []
            for _ in range(connections):
                if (peer := connect(address)) is None:
                    break
                peers.append(stack.enter_context(peer))
                with suppress(BrokenPipeError, ConnectionResetError):
                    peer.sendall(recorded[:first])
            for at in range(first, 10**9):
                if stop.wait(pace_s):
                    break
                for peer in peers:
                    with suppress(BrokenPipeError, ConnectionResetError):
                        peer.sendall(recorded[at % len(recorded) :][:1])
        yield b""

    return attack


ATTACKS: dict[str, Attack] = {
    "garbage": say(os.urandom(100_000)),
    "http": say(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" + b"x" * 40),
    "huge length": say(struct.pack("<IQI", 2**32 - 1, 2**64 - 1, 2**32 - 1) + bytes(100)),
    "wrong key": wrong_key,
    "replay": replay,
    "truncated greeting": hold(100, 30),
    "truncated handshake": hold(100, 52),
    "one byte per second": hold(100, 1, 1.0),
    "idle": hold(1000, 0),
}


@contextmanager
def strangers(attack: Attack, addresses: list[Address], recorded: bytes) -> Iterator[list[bytes]]:
    """Attacks all addresses while the block runs; gives what was heard so far."""
    stop = threading.Event()
    heard: list[bytes] = []

    def run(address: Address) -> None:
        heard.extend(attack(address, recorded, stop))

    threads = [threading.Thread(target=run, args=(address,)) for address in addresses]
    for thread in threads:
        thread.start()
    try:
        yield heard
    finally:
        stop.set()
        for thread in threads:
            thread.join()


class Recorder:
    """A proxy before a server: copies bytes both ways and keeps what the first client says."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.recorded = b""
        self._threads: list[threading.Thread] = []
        self._sockets = [self._listener]

    def serve(self, server: Address) -> None:
        """Takes one client to `server`."""
        client, _ = self._listener.accept()
        peer = socket.create_connection(server)
        self._sockets += [client, peer]
        for source, sink, keep in ((client, peer, True), (peer, client, False)):
            thread = threading.Thread(target=self._copy, args=(source, sink, keep))
            thread.start()
            self._threads.append(thread)

    def _copy(self, source: socket.socket, sink: socket.socket, keep: bool) -> None:
        with suppress(OSError):
            while data := source.recv(4096):
                if keep:
                    self.recorded += data
                sink.sendall(data)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """REQUIRES: the client has ended."""
        for thread in self._threads:
            thread.join()
        for one in self._sockets:
            one.close()
