"""The loop around a training: what follows where a rank is lost or new."""

from __future__ import annotations

import functools
import secrets
import sys
import warnings
from collections.abc import Callable
from typing import Any, Final, TypeVar

from hvdtune.core.elastic.state import (
    State,
    course_of,
    finish_writing,
    messages_of,
    parts_of,
    take_parts,
)
from hvdtune.core.rank import runtime
from hvdtune.core.rank.process import PROCESS
from hvdtune.errors import (
    CollectiveError,
    DuplicateNameError,
    HostsUpdatedInterrupt,
    HvdtuneError,
    MismatchError,
    RankRemovedError,
    UsageError,
)

T = TypeVar("T")

# What the script has done wrong, it would do wrong again.
_MISTAKES: Final = (MismatchError, DuplicateNameError)


def run_fn(
    func: Callable[..., T],
    reset: Callable[[], Any],
    failure_of: Callable[[BaseException], CollectiveError | None] = lambda _: None,
) -> Callable[..., T]:
    """Makes a decorated training function: its first argument is a State.

    Args:
        func: trains from wherever the state is; called anew in every generation.
        reset: leaves the job and forms it again.
        failure_of: the CollectiveError behind an error of a framework's, None for another error.
    """

    @functools.wraps(func)
    def wrapper(state: State, *args: Any, **kwargs: Any) -> T:
        if not isinstance(state, State):
            raise UsageError(
                "a function with @hvd.elastic.run takes a State, such as hvd.elastic.TorchState or "
                f"KerasState, as its first argument, not {type(state).__name__}"
            )
        must_reset = False
        while True:
            try:
                if must_reset:
                    _reset(reset)
                    must_reset = False
                    messages_of(state).take()  # of the generation that has ended
                    state.on_reset()
                _take_part(state)
                result = func(state, *args, **kwargs)
                finish_writing(state)
                if PROCESS.worker is not None:
                    PROCESS.worker.note_end()
                return result
            except HostsUpdatedInterrupt:
                if PROCESS.worker is None:
                    raise
            except Exception as error:
                failure = error if isinstance(error, CollectiveError) else failure_of(error)
                worker = PROCESS.worker
                if failure is None or worker is None or isinstance(failure, _MISTAKES):
                    if worker is not None:
                        worker.note_raised(error)
                    raise
                worker.note_failure(failure)
                # It holds the frames of the training, and these what reads ahead for it.
                del failure
                state.restore()
            must_reset = True

    return wrapper


def _reset(reset: Callable[[], Any]) -> None:
    try:
        reset()
    except RankRemovedError as error:
        # The job goes on without this process, which has done all that it was to do.
        print(f"hvdtune: {error}", file=sys.stderr)
        sys.exit(0)


def _take_part(state: State) -> None:
    """Brings this rank's state to that of the generation, where it is another one."""
    worker = PROCESS.worker
    place = None if worker is None else worker.place
    course = course_of(state)
    if course.first_seed is None:
        course.first_seed, course.training = state.seed(), secrets.token_hex(4)
    done = (0, 0) if worker is None else (worker.commits, worker.samples)
    told = state.of_rank_0((course.commits, course.training, course.first_seed, *done))
    store = parts_of(state) if place is not None or not course.is_shared else None
    agreed = None if store is None else store.agree()
    if place is None or place.must_sync or not course.is_shared:
        state.sync()
    # Nothing comes from elsewhere between these: whoever fails, this rank knows what it holds.
    if store is not None and agreed is not None:
        store.settle(agreed.version)
    course.is_shared = True
    course.commits, course.training, seed, commits, samples = told
    course.first_seed = seed
    if worker is not None:
        worker.note_state(commits, samples, course.commits)
    if agreed is not None:
        take_parts(state, agreed)
    # The numbers with which a script begins are its own.
    if course.commits or (place is not None and place.generation > 0):
        state.deal_randomness(seed, course.commits)
    if worker is not None:
        worker.note_begin()


def run(
    func: Callable[..., T],
    failure_of: Callable[[BaseException], CollectiveError | None] = lambda _: None,
) -> Callable[..., T]:
    """Decorates a training function, so that it goes on when ranks come and go.

    The function's first argument is a State, from which it takes up its loop: it is called anew in
    every generation of the job. Under `hvdtune run --min-np ...` a rank that is lost makes it go
    back to the last `state.commit()`, newcomers begin with rank 0's state. Without such a launcher
    an error ends the function as usual.

        @hvd.elastic.run
        def train(state):
            for state.epoch in range(state.epoch, epochs):
                ...
                state.commit()

    Args:
        failure_of: see run_fn.
    """
    return run_fn(func, _form_anew, failure_of)


def _form_anew() -> None:
    try:
        runtime.shutdown()
    except HvdtuneError as error:
        if isinstance(error, CollectiveError):
            raise
        # The rank has left the job. A trace that cannot be written does not end the training.
        warnings.warn(f"{error}. Training continues", RuntimeWarning, stacklevel=4)
    runtime.init()
