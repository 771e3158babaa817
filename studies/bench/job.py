"""A job whose ranks are processes of a benchmark, which hears from them through pipes."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from hvdtune.core import _native
from hvdtune.core.config.environment import Config
from hvdtune.core.config.groups import RankPlace, RendezvousConfig


@contextlib.contextmanager
def job(work: Callable[..., None], arguments: Sequence[Sequence[Any]]) -> Iterator[list[Any]]:
    """Runs `work(config, *arguments[rank], pipe)` on each rank, in a process of its own.

    Gives the ends of the pipes from which to receive, by rank. Waits for the ranks at the end.
    """
    context = multiprocessing.get_context("forkserver")
    key = os.urandom(32)
    server = _native.JobServer(key, len(arguments))
    pipes, processes = [], []
    for rank, given in enumerate(arguments):
        here, there = context.Pipe(duplex=False)
        config = Config(
            place=RankPlace(rank, len(arguments)),
            rendezvous=RendezvousConfig("127.0.0.1", server.port, key),
        )
        process = context.Process(target=work, args=(config, *given, there))
        process.start()
        there.close()
        pipes.append(here)
        processes.append(process)
    yield pipes
    for process in processes:
        process.join()
    server.close()
