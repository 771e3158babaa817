"""Functions that run in threads of their own."""

import contextlib
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any


def in_thread(
    target: Callable[..., Any],
    args: tuple[Any, ...] = (),
    name: str | None = None,
    daemon: bool = True,
    silent: bool = False,
) -> threading.Thread:
    """Starts a thread that calls `target(*args)`, and returns it.

    `silent` keeps what it raises to itself. Raises ValueError when `args` is no tuple.
    """
    if not isinstance(args, tuple):
        raise ValueError(
            f"args must be a tuple, not {type(args).__name__}; write a single argument as (arg,)"
        )

    def call() -> None:
        with contextlib.suppress(Exception) if silent else contextlib.nullcontext():
            target(*args)

    thread = threading.Thread(target=call, name=name, daemon=daemon)
    thread.start()
    return thread


def on_event(
    event: threading.Event,
    func: Callable[..., Any],
    args: tuple[Any, ...] = (),
    stop: threading.Event | None = None,
    check_stop_interval: float = 1.0,
    daemon: bool = True,
    silent: bool = False,
) -> threading.Thread:
    """Starts a thread that calls `func(*args)` once `event` is set, and returns it.

    It ends without the call when `stop` is set first, which it looks at every
    `check_stop_interval` seconds. Raises ValueError for what is no event or no tuple.
    """
    if not isinstance(event, threading.Event) or not isinstance(stop, threading.Event | None):
        raise ValueError("event and stop must be threading.Event objects")
    if not isinstance(args, tuple):
        raise ValueError(
            f"args must be a tuple, not {type(args).__name__}; write a single argument as (arg,)"
        )

    def wait() -> None:
        while not event.wait(None if stop is None else check_stop_interval):
            if stop is not None and stop.is_set():
                return
        func(*args)

    return in_thread(wait, daemon=daemon, silent=silent)


def execute_function_multithreaded(
    fn: Callable[..., Any],
    args_list: Sequence[Sequence[Any]],
    block_until_all_done: bool = True,
    max_concurrent_executions: int = 1000,
) -> dict[int, Any] | None:
    """Calls `fn(*args)` for each of `args_list`, each in a thread.

    Returns the results by the position of their arguments, or None at once when
    `block_until_all_done` is False. Raises what the first of the calls raises.
    """
    workers = max(1, min(len(args_list), max_concurrent_executions))
    pool = ThreadPoolExecutor(workers)
    calls = [pool.submit(fn, *args) for args in args_list]
    pool.shutdown(wait=block_until_all_done)
    return dict(enumerate(call.result() for call in calls)) if block_until_all_done else None
