"""A job channel in pure Python: it forms the job and knows nothing of steps.

Run as a program it is a launcher: `python stand_in.py RANKS COMMAND...`.
"""

import os
import queue
import socket
import sys
import threading

from hvdtune.core.config.knobs import Setting
from hvdtune.core.job.channel import Closed, Formed, JobEvent, Lost, RankAddress
from hvdtune.core.job.interrupt import Stopped, stop_signals
from hvdtune.launcher.hosts import Host
from hvdtune.launcher.output import terminal_writer
from hvdtune.launcher.plan import plan_slots
from hvdtune.launcher.ranks import JobOptions, JobPlan, start_ranks

# What a rank's script does for hvd.init().
INIT = """
import os, socket, sys, time
def init():
    address, port = os.environ["HVDTUNE_RENDEZVOUS"].rsplit(":", 1)
    peer = socket.create_connection((address, int(port)))
    key = os.pread(int(os.environ["HVDTUNE_KEY_FD"]), 64, 0)
    peer.sendall(key + bytes([int(os.environ["HVDTUNE_RANK"])]))
    assert peer.recv(1) == b"!"
    return peer
"""


class StandInChannel:
    def __init__(self, key: bytes, size: int, start_timeout_s: float) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self._key, self._size, self._start_timeout_s = key, size, start_timeout_s
        self._events: queue.Queue[JobEvent] = queue.Queue()
        self._peers: list[socket.socket] = []
        self._thread = threading.Thread(target=self._form, daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.getsockname()[1]}"

    def propose(self, setting: Setting) -> int:
        raise NotImplementedError

    def next_event(self, timeout_s: float) -> JobEvent | None:
        try:
            return self._events.get(timeout=timeout_s) if timeout_s else self._events.get_nowait()
        except queue.Empty:
            return None

    def abort(self, why: str) -> None:
        if self._peers:
            self._events.put(Lost(-1, why))

    def close(self) -> None:
        # Wakes accept(), which closing alone does not.
        self._server.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._server.close()
        for peer in self._peers:
            peer.close()

    def _form(self) -> None:
        ranks = []
        try:
            while len(ranks) < self._size:
                peer, _ = self._server.accept()
                self._server.settimeout(self._start_timeout_s)  # counts from the first
                self._peers.append(peer)
                hello = peer.recv(33)
                assert hello[:32] == self._key
                ranks.append(RankAddress(hello[32], "localhost", 0))
        except TimeoutError:
            self._events.put(Lost(-1, "a rank did not call hvd.init() in time"))
            return
        except OSError:
            self._events.put(Closed())
            return
        self._events.put(Formed(tuple(ranks), {}))
        for peer in self._peers:
            peer.sendall(b"!")


def main(ranks: int, command: list[str]) -> int:
    plan = JobPlan(tuple(command), plan_slots([Host("localhost", ranks)], ranks), command[-1])
    try:
        with (
            stop_signals(),
            start_ranks(
                plan,
                {},
                JobOptions(terminate_grace_s=float(os.environ.get("STAND_IN_GRACE_S", "0.5"))),
                writers=[terminal_writer()],
                open_channel=StandInChannel,
            ) as job,
        ):
            return job.wait().returncode
    except Stopped as stop:
        return stop.exit_code


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
