"""What the ranks write: read from their pipes, prefixed by rank, kept in part."""

from __future__ import annotations

import contextlib
import os
import selectors
import subprocess
import sys
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import IO, Final

# Takes "stdout" or "stderr" and whole lines, prefixed; called from the reading thread only.
Writer = Callable[[str, bytes], None]

_READ_BYTES: Final = 1 << 16


class LineSplitter:
    """Cuts a stream of bytes into lines; each keeps its terminator.

    A carriage return ends a line too: progress bars redraw theirs and never write a newline.
    """

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that `data`, not empty, completes. One of over 64 KiB comes in pieces."""
        lines = (self._rest + data).splitlines(keepends=True)
        # A carriage return at the end may have its newline still to come.
        self._rest = b"" if lines[-1].endswith(b"\n") else lines.pop()
        if len(self._rest) > _READ_BYTES:
            lines.append(self._rest + b"\n")
            self._rest = b""
        return lines

    def finish(self) -> list[bytes]:
        """The rest at the end of the stream, as a line."""
        rest, self._rest = self._rest, b""
        return [rest.rstrip(b"\r") + b"\n"] if rest else []


class Output:
    """Reads the ranks' pipes on a thread of its own and notes the order in which ranks end.

    `watch()`, `start()` and `close()` belong to one thread; everything else may be called from any.

    Args:
        writers: where the prefixed lines go.
        tail_lines: how many of its last lines are kept per rank.
    """

    def __init__(self, writers: Sequence[Writer], tail_lines: int) -> None:
        self._writers = list(writers)
        self._tails: defaultdict[int, deque[str]] = defaultdict(
            lambda: deque[str](maxlen=tail_lines)
        )
        self._new: SimpleQueue[tuple[int, subprocess.Popen[bytes]]] = SimpleQueue()
        self.write_error = ""
        self._ended: list[int] = []
        self._changed = threading.Event()
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = os.pipe()
        self._selector.register(self._wake_read, selectors.EVENT_READ, self._woken)
        self._stopping = self._closing = False
        self._open = 0
        self._thread = threading.Thread(target=self._run, name="hvdtune-output", daemon=True)

    def watch(self, rank: int, child: subprocess.Popen[bytes]) -> None:
        """Adds a rank. Takes over its pipes."""
        if self._thread.ident is None:
            self._register(rank, child)
        else:
            self._new.put((rank, child))
            os.write(self._wake_write, b"n")

    def _register(self, rank: int, child: subprocess.Popen[bytes]) -> None:
        for stream, pipe in (("stdout", child.stdout), ("stderr", child.stderr)):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)
            read = _Reader(self, rank, stream, pipe)
            self._selector.register(pipe, selectors.EVENT_READ, read)
            self._open += 1
        # Linux before 5.3 has no such descriptor: then the order is that of the polls.
        with contextlib.suppress(OSError):
            pidfd = os.pidfd_open(child.pid)
            self._selector.register(pidfd, selectors.EVENT_READ, _Exit(self, rank, pidfd))
            self._open += 1

    def start(self) -> None:
        """Begins to read, until `close()`."""
        self._thread.start()

    def wait_for_change(self, timeout_s: float) -> None:
        """Return when a rank has ended, or `wake` was called, since the last call; or after the
        timeout."""
        if self._changed.wait(timeout_s):
            self._changed.clear()

    def wake(self) -> None:
        """End the wait for a change."""
        self._changed.set()

    def ended(self) -> tuple[int, ...]:
        """The ranks that have ended, first one first."""
        return tuple(self._ended)

    def tail(self, rank: int) -> tuple[str, ...]:
        """The rank's last lines, without prefix and terminator, stdout and stderr together."""
        return tuple(self._tails.get(rank, ()))

    def close(self, timeout_s: float) -> None:
        """Reads what is still in the pipes, at most for the timeout, and ends the thread.

        A pipe stays open beyond its rank when a process that left the group holds it.
        """
        if self._thread.ident is not None:
            os.write(self._wake_write, b"c")
            self._thread.join(timeout_s)
            os.write(self._wake_write, b"s")
            self._thread.join()
        for key in list(self._selector.get_map().values()):
            if isinstance(key.data, _Reader | _Exit):
                key.data.close()
        self._selector.close()
        os.close(self._wake_read)
        os.close(self._wake_write)

    def _run(self) -> None:
        while not self._stopping and not (self._closing and self._open == 0):
            for key, _ in self._selector.select():
                key.data()

    def _woken(self) -> None:
        """Each byte is an order: there are new ranks, close when all is read, or stop at once."""
        orders = os.read(self._wake_read, _READ_BYTES)
        while not self._new.empty():
            self._register(*self._new.get())
        self._closing |= b"c" in orders
        self._stopping |= b"s" in orders

    def forget(self, fd: int | IO[bytes]) -> None:
        self._selector.unregister(fd)
        self._open -= 1

    def note_exit(self, rank: int) -> None:
        self._ended.append(rank)
        self.wake()

    def emit(self, rank: int, stream: str, lines: Sequence[bytes]) -> None:
        prefix = f"[{rank}]<{stream}>:".encode()
        for line in lines:
            if not line.endswith(b"\r"):
                self._tails[rank].append(line.decode(errors="replace").rstrip("\r\n"))
        text = b"".join(prefix + line for line in lines)
        for write in tuple(self._writers):
            try:
                write(stream, text)
            except OSError as error:
                # A full disk must not stop the reading, which would stop the ranks.
                self._writers.remove(write)
                self.write_error = f"output was not kept: {error.strerror}"


class _Reader:
    def __init__(self, output: Output, rank: int, stream: str, pipe: IO[bytes]) -> None:
        self._output, self._rank, self._stream, self._pipe = output, rank, stream, pipe
        self._splitter = LineSplitter()

    def __call__(self) -> None:
        data = os.read(self._pipe.fileno(), _READ_BYTES)
        lines = self._splitter.feed(data) if data else self._splitter.finish()
        if lines:
            self._output.emit(self._rank, self._stream, lines)
        if not data:
            self._output.forget(self._pipe)
            self._pipe.close()

    def close(self) -> None:
        if lines := self._splitter.finish():
            self._output.emit(self._rank, self._stream, lines)
        self._pipe.close()


class _Exit:
    def __init__(self, output: Output, rank: int, pidfd: int) -> None:
        self._output, self._rank, self._pidfd = output, rank, pidfd

    def __call__(self) -> None:
        self._output.forget(self._pidfd)
        self.close()
        self._output.note_exit(self._rank)

    def close(self) -> None:
        os.close(self._pidfd)


def terminal_writer() -> Writer:
    """Writes to this process's own stdout and stderr; a reader that went away is no error."""
    buffers = {"stdout": sys.stdout.buffer, "stderr": sys.stderr.buffer}

    def write(stream: str, text: bytes) -> None:
        buffer = buffers[stream]
        try:
            buffer.write(text)
            buffer.flush()
        except BrokenPipeError:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, buffer.fileno())
            os.close(null)

    return write


def stamped(write: Writer) -> Writer:
    """`write` with the local time before every line, as mpirun and horovodrun show it."""

    def write_stamped(stream: str, text: bytes) -> None:
        now = time.strftime("%a %b %d %H:%M:%S %Y").encode()
        write(stream, b"".join(now + line for line in text.splitlines(keepends=True)))

    return write_stamped


def file_writer(file: IO[bytes]) -> Writer:
    """Writes both streams to one unbuffered file."""

    def write(_: str, text: bytes) -> None:
        file.write(text)

    return write
