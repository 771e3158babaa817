"""The launcher's end of the workers' connections: what they say and what they are told."""

from __future__ import annotations

import contextlib
import math
import queue
import socket
import threading
import time
from collections.abc import Callable
from typing import Final

from hvdtune.core.job import proof
from hvdtune.core.job.worker_messages import (
    Arrival,
    Message,
    Messages,
    Probe,
    Progress,
    Raised,
    Training,
)
from hvdtune.errors import RendezvousError
from hvdtune.launcher.nodes.admission import Admission
from hvdtune.launcher.nodes.connections import end_with_host

Said = Arrival | Progress | Training | Raised

# Without an answer to so many the other host is taken for cut off.
_PROBES: Final = 3
# Of the time after which a silent worker's host is asked: so long one that others have lost, too,
# may take to answer.
_PROBE_SHARE: Final = 0.25


class Coordinator:
    """Listens for the workers of one elastic job, each of which proves that it has the key.

    Thread rule: one thread uses it, but for `_receive`, which runs on a thread per connection, and
    `_admit`, which runs on an admission's. `_lock` guards `_connections`, `_open`, `_probed`,
    `_threads` and `_is_closed`.
    """

    def __init__(self, key: bytes, woken: Callable[[], None], probe_s: float) -> None:
        """Listens nowhere yet.

        Args:
            key: the job's.
            woken: is called, on any thread, when there is something to `take`.
            probe_s: how often a silent worker's host is asked whether it is there.
        """
        self._key, self._woken, self._probe_s = key, woken, probe_s
        self._every_s = math.ceil(probe_s)  # which the system counts in whole seconds
        self._admissions: dict[str, tuple[str, Admission]] = {}
        self._lock = threading.Lock()
        self._connections: dict[int, Messages] = {}
        self._open: set[Messages] = set()
        self._probed: set[Messages] = set()
        self._is_closed = False
        self._threads: list[threading.Thread] = []
        self._came: queue.SimpleQueue[tuple[float, Said]] = queue.SimpleQueue()

    def listen(self, bind_host: str) -> str:
        """Listens on an address of this machine, if it does not yet.

        Returns `host:port` for HVDTUNE_RENDEZVOUS; `[host]:port` with an address of IPv6.
        """
        if bind_host not in self._admissions:
            family = socket.AF_INET6 if ":" in bind_host else socket.AF_INET
            listener = socket.create_server((bind_host, 0), family=family)
            host, port = bind_host.partition("%")[0], int(listener.getsockname()[1])
            address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            admission = Admission(listener, self._key, proof.WORKER, proof.FIRST, self._admit)
            self._admissions[bind_host] = address, admission
        return self._admissions[bind_host][0]

    def take(self) -> list[tuple[float, Said]]:
        """What workers have said since the last call, the oldest first, with when it came (in
        seconds of `time.monotonic`)."""
        taken = []
        with contextlib.suppress(queue.Empty):
            while True:
                taken.append(self._came.get_nowait())
        return taken

    def tell(self, worker: int, message: Message) -> None:
        """Sends a message. One whose process has ended meanwhile needs none."""
        with self._lock:
            connection = self._connections.get(worker)
        if connection is not None:
            with contextlib.suppress(OSError):
                connection.send(message)

    def has_lost(self, worker: int) -> bool:
        """Whether the worker's connection has ended: it will say nothing any more."""
        with self._lock:
            connection = self._connections.get(worker)
            return connection is not None and connection not in self._open

    def is_cut_off(self, worker: int) -> bool:
        """Whether the connection has ended as the worker's host could not be reached any more."""
        with self._lock:
            connection = self._connections.get(worker)
            is_over = connection not in self._open
            return connection is not None and is_over and connection.is_cut

    def probe(self, worker: int) -> None:
        """Finds out whether the host of a worker that others have lost can still be reached.

        Does nothing where that goes on already: until the worker calls `init` again.
        """
        with self._lock:
            connection = self._connections.get(worker)
            if connection not in self._open or connection in self._probed:
                return
            self._probed.add(connection)
        with contextlib.suppress(OSError):
            connection.limit_silence(self._probe_s * _PROBE_SHARE)
            connection.send(Probe())

    def close(self) -> None:
        """Hangs up on all workers."""
        for _, admission in self._admissions.values():
            admission.close()
        with self._lock:
            self._is_closed = True
            for connection in self._open:
                connection.close()
        for thread in self._threads:
            thread.join()

    def _admit(self, connection: socket.socket, session: bytes) -> None:
        end_with_host(connection, self._every_s, _PROBES)
        messages = Messages(connection, session, dialed=False)
        # While something is on its way the system does not probe, but sends it again.
        messages.limit_silence(self._every_s * (1 + _PROBES))
        thread = threading.Thread(
            target=self._receive, args=(messages,), name="hvdtune-worker", daemon=True
        )
        with self._lock:
            if self._is_closed:
                messages.close()
                return
            thread.start()  # it waits for the lock before it ends
            self._open.add(messages)
            self._threads.append(thread)

    def _receive(self, messages: Messages) -> None:
        """Takes messages until the worker hangs up; its process's end explains that better."""
        try:
            with contextlib.suppress(RendezvousError, OSError):
                while True:
                    self._take_message(messages)
        finally:  # whatever was raised, this worker is lost
            with self._lock:
                self._open.discard(messages)
                self._probed.discard(messages)
            messages.close()

    def _take_message(self, messages: Messages) -> None:
        said = messages.receive()
        if isinstance(said, Arrival):
            with self._lock:
                self._connections[said.worker] = messages
                if messages in self._probed:
                    self._probed.remove(messages)
                    messages.limit_silence(self._every_s * (1 + _PROBES))
        if isinstance(said, Said):
            self._came.put((time.monotonic(), said))
        if isinstance(said, Arrival):
            self._woken()
