"""Runs a function in every member of a group, each a process of its own."""

import os
import pickle
import signal
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from typing import Any

from tests.parallel.ranks import CONTEXT

SILENCE_S = 120.0


@dataclass
class Member:
    """What it returned or raised; None and "" where it was killed."""

    value: Any = None
    error: BaseException | None = None
    trace: str = ""


def _main(body: Callable[..., Any], rank: int, size: int, store: str, results: Connection) -> None:
    import torch
    from torch import distributed

    import hvdtune.distributed  # noqa: F401

    torch.set_num_threads(1)
    try:
        distributed.init_process_group(
            "hvdtune",
            init_method=f"file://{store}",
            rank=rank,
            world_size=size,
            timeout=timedelta(seconds=60),
        )
        member = Member(body(rank, size))
        with suppress(AssertionError):  # the body may have destroyed it
            distributed.destroy_process_group()
    except BaseException as error:
        member = Member(None, _plain(error), traceback.format_exc())
    results.send_bytes(pickle.dumps(member))


def _plain(error: BaseException) -> BaseException:
    """With its attributes: pickle leaves those of torch's classes out."""
    made = RuntimeError(str(error))
    made.__dict__.update(vars(error), kind=type(error).__name__)
    return made


def run(body: Callable[..., Any], size: int, folder: Any, *, kills: int | None = None) -> list[Any]:
    """Calls body(rank, size) in each of `size` processes, in which the group is formed.

    Args:
        folder: for the store.
        kills: the rank that the body kills; its outcome is None, and so are no errors raised.

    Returns:
        What each returned, in rank order; with `kills`, the Member of each.
    """
    pairs = [CONTEXT.Pipe(duplex=False) for _ in range(size)]
    store = str(folder / "store")
    processes = [
        CONTEXT.Process(target=_main, args=(body, rank, size, store, pairs[rank][1]))
        for rank in range(size)
    ]
    for process, (_, sends) in zip(processes, pairs, strict=True):
        process.start()
        sends.close()
    members: dict[int, Member] = {}
    pending = {pair[0]: rank for rank, pair in enumerate(pairs)}
    while pending:
        ready = wait(list(pending), SILENCE_S)
        assert ready, f"ranks {sorted(pending.values())} neither returned nor died"
        for connection in ready:
            rank = pending.pop(connection)
            try:
                members[rank] = pickle.loads(connection.recv_bytes())
            except EOFError:
                members[rank] = Member()
    for process in processes:
        process.join(SILENCE_S)
    found = [members[rank] for rank in range(size)]
    if kills is not None:
        return found
    for rank, member in enumerate(found):
        assert member.error is None, f"rank {rank}: {member.trace}"
    return [member.value for member in found]


def die() -> None:
    """Ends this process as the kernel would."""
    os.kill(os.getpid(), signal.SIGKILL)
