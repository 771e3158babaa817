"""Connections that take a place and ask for nothing."""

import http.client
import platform
import socket
import subprocess
import sys
import threading
import time

import pytest

from hvdtune.dashboard import server as server_module
from hvdtune.dashboard.app import create_app
from hvdtune.dashboard.data import RunView
from hvdtune.dashboard.runs import Runs
from hvdtune.dashboard.server import Server

from .synthetic import training_trace

# Keeps what lies between large arrays, and says how much of these is resident when they are freed.
_FREED = """
import numpy, resource
from hvdtune.dashboard.server import return_freed_memory
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()
return_freed_memory()
numpy.ones(1 << 21)
before, large, kept = resident(), [], []
for _ in range(20):
    large.append(numpy.ones(1 << 20))
    kept.append(numpy.ones(1 << 15))
large.clear()
print(resident() - before)
"""


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(server_module, "MOST_CONNECTIONS", 4)
    app = create_app(Runs([RunView("run", training_trace())]), "key").server
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = Server("127.0.0.1", app, listener)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()
        server.server_close()


def connected(server):
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=60)
    connection.sendall(b"GET / HT")  # and never more
    return connection


def asked(connection, path):
    connection.request("GET", path)
    answer = connection.getresponse()
    answer.read()
    return answer


def test_strangers_keep_nobody_out(server):
    strangers = [connected(server) for _ in range(4)]
    visitor = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    cookie = asked(visitor, "/?token=key").headers["Set-Cookie"].partition(";")[0]
    visitor.putrequest("GET", "/")
    visitor.putheader("Cookie", cookie)
    visitor.endheaders()
    assert visitor.getresponse().read().startswith(b"<!DOCTYPE html>")
    assert strangers[0].recv(1) == b""  # the oldest has made room
    for _ in range(9):
        strangers.append(connected(server))
    assert strangers[-6].recv(1) == b""
    visitor.putrequest("GET", "/")
    visitor.putheader("Cookie", cookie)
    visitor.endheaders()
    assert visitor.getresponse().status == 200  # on the same connection
    for connection in (visitor, *strangers):
        connection.close()


def test_threads_are_as_many_as_places(server):
    before = threading.active_count()
    strangers = [connected(server) for _ in range(40)]
    for stranger in strangers[:36]:
        assert stranger.recv(1) == b""
    give_up_s = time.monotonic() + 60
    while threading.active_count() > before + 4 and time.monotonic() < give_up_s:
        time.sleep(0.01)  # those that were hung up on still end
    assert threading.active_count() <= before + 4
    for stranger in strangers:
        stranger.close()


def test_who_says_nothing_more_is_hung_up_on(server, monkeypatch):
    monkeypatch.setattr(server_module._RequestHandler, "timeout", 0.05)
    with connected(server) as connection:
        assert connection.recv(1) == b""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_what_large_arrays_took_goes_back_to_the_system():
    told = subprocess.run(
        [sys.executable, "-c", _FREED], capture_output=True, check=True, text=True
    )
    assert int(told.stdout) < 2 * 20 * (8 << 15)
