"""The HTTP server: a thread for each connection, and a bound on how many there are."""

import contextlib
import ctypes
import socket
import threading
import time
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import unquote_to_bytes

from flask import Flask, Response
from werkzeug.serving import ThreadedWSGIServer, WSGIRequestHandler

# The path prefix of a request, percent-encoded, in its environment.
PREFIX: Final = "hvdtune.prefix"
# A browser has six to a server, so this is a good many tabs of several users.
MOST_CONNECTIONS: Final = 64
# For one piece of a request to come, and for an answer to be taken.
PATIENCE_S: Final = 120.0
_PAUSE_S: Final = 0.1


# Of one array; larger ones go back to the system when they are freed.
_KEPT_BYTES: Final = 1 << 20
_M_MMAP_THRESHOLD: Final = -3  # malloc.h


def return_freed_memory() -> None:
    """Lets glibc give the system back what large arrays leave.

    By itself it raises this limit to 32 MiB, and then keeps gigabytes between requests.
    """
    with contextlib.suppress(AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _KEPT_BYTES)


class UnderPrefix:
    """Lets an application answer under a path prefix.

    Some proxies remove the prefix from the path and some keep it; both are answered.
    """

    def __init__(self, app: Callable[..., Any], prefix: str) -> None:
        self._app = app
        self._shown = prefix
        self._prefix = unquote_to_bytes(prefix).decode("latin-1")  # as WSGI has paths

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        path = environ["PATH_INFO"]
        if path == self._prefix:
            query = environ.get("QUERY_STRING", "")
            place = f"{self._shown}/?{query}" if query else f"{self._shown}/"
            return Response(status=308, headers={"Location": place})(environ, start_response)
        if path.startswith(f"{self._prefix}/"):
            path = path.removeprefix(self._prefix)
        environ |= {"SCRIPT_NAME": self._prefix, "PATH_INFO": path, PREFIX: self._shown}
        return self._app(environ, start_response)


class Server(ThreadedWSGIServer):
    """Serves until Ctrl-C.

    When all places are taken, the oldest connection that has asked for nothing which the gate let
    it have makes room: whoever has no token keeps nobody out who has.
    """

    def __init__(self, host: str, app: Flask, listener: socket.socket) -> None:
        port = listener.getsockname()[1]
        self._lock = threading.Lock()
        # Guarded by `_lock`: whether the gate has let it have something, in order of arrival.
        self._connections: dict[socket.socket, bool] = {}
        super().__init__(host, port, app, handler=_RequestHandler, fd=listener.fileno())

    def get_request(self) -> Any:
        """Called when a connection waits.

        While the process has no descriptor to spare, the connection stays in the queue, and the
        loop that calls this would spin without the pause.
        """
        try:
            return super().get_request()
        except OSError:
            time.sleep(_PAUSE_S)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        """Called for each new connection."""
        with self._lock:
            if len(self._connections) >= MOST_CONNECTIONS:
                strangers = (one for one, is_kept in self._connections.items() if not is_kept)
                leaves = next(strangers, request)
                self._connections.pop(leaves, None)
                _hang_up(leaves)
                if leaves is request:
                    request.close()
                    return
            self._connections[request] = False
        super().process_request(request, client_address)

    def keep(self, connection: socket.socket) -> None:
        """It need not make room from here on."""
        with self._lock:
            if connection in self._connections:
                self._connections[connection] = True

    def shutdown_request(self, request: Any) -> None:
        """Called at the end of each connection."""
        with self._lock:
            self._connections.pop(request, None)
        super().shutdown_request(request)


class _RequestHandler(WSGIRequestHandler):
    """Logs no requests: their addresses would put the token on the terminal, and strangers' words.

    Faults of the application are told all the same, by the server.
    """

    timeout = PATIENCE_S
    protocol_version = "HTTP/1.1"
    server: Server

    def make_environ(self) -> dict[str, Any]:
        return super().make_environ() | {"hvdtune.keep": lambda: self.server.keep(self.connection)}

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        pass

    def log_error(self, format: str, *args: Any) -> None:
        pass


def _hang_up(connection: socket.socket) -> None:
    """Ends a connection; its thread, if it has one, sees the end and closes the socket."""
    with contextlib.suppress(OSError):  # the other end has done so
        connection.shutdown(socket.SHUT_RDWR)
