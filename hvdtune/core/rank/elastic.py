"""Training that goes on when ranks come and go: what is kept, and the loop around it.

A rank that is lost makes the others raise HorovodInternalError: they go back to the last commit,
form the next generation of the job without a new process, and go on from there. Newcomers are
taken in at a commit, where all ranks raise HostsUpdatedInterrupt.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import pickle
import random
import sys
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

import numpy as np

from hvdtune.core.rank import objects, runtime
from hvdtune.core.rank.process import PROCESS
from hvdtune.errors import (
    CollectiveError,
    DuplicateNameError,
    HostsUpdatedInterrupt,
    MismatchError,
    RankRemovedError,
    UsageError,
)

T = TypeVar("T")

_NOTHING_NEW: Final = -1
_SEED_BYTES: Final = 8
# What the script has done wrong, it would do wrong again.
_MISTAKES: Final = (MismatchError, DuplicateNameError)


class State:
    """What a training is made of, as Horovod's `hvd.elastic.State`; a base to derive from.

    Args:
        bcast_object: called with an object, returns that of rank 0.
        get_rank: returns this process's rank.

    Attributes:
        is_shared: whether all ranks have begun with rank 0's.
    """

    is_shared = False

    def __init__(self, bcast_object: Callable[[Any], Any], get_rank: Callable[[], int]) -> None:
        self._bcast_object = bcast_object
        self._rank = get_rank
        self._reset_callbacks: list[Callable[[], Any]] = []

    def register_reset_callbacks(self, callbacks: Iterable[Callable[[], Any]]) -> None:
        """Calls these in every later generation, before rank 0's state is sent: to fit a learning
        rate to `hvd.size()`, say."""
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """Calls `reset`, then what was registered."""
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def commit(self) -> None:
        """Keeps the state in memory, to go back to after a failure, and looks for new hosts.

        All ranks call it after the same step.

        Raises:
            HostsUpdatedInterrupt: see `check_host_updates`.
        """
        self.save()
        if PROCESS.worker is not None:
            PROCESS.worker.commits += 1
        self.check_host_updates()

    def check_host_updates(self) -> None:
        """Raises HostsUpdatedInterrupt on all ranks where the launcher wants another generation.

        All ranks call it after the same step; it costs the broadcast of a number.
        """
        worker = PROCESS.worker
        if worker is None:
            return
        news = _NOTHING_NEW
        if runtime.rank() == 0 and (update := worker.take_update()) is not None:
            news = int(update.added)
        (told,) = objects.broadcast_arrays([np.array([news])], 0)
        if int(told[0]) != _NOTHING_NEW:
            raise HostsUpdatedInterrupt(skip_sync=not told[0])

    def save(self) -> None:
        """Keeps the state in memory."""
        raise NotImplementedError

    def restore(self) -> None:
        """Goes back to what was saved last."""
        raise NotImplementedError

    def sync(self) -> None:
        """Takes rank 0's state on all ranks, and saves it."""
        raise NotImplementedError

    def reset(self) -> None:
        """Fits what depends on ranks and sizes to the new generation."""

    def seed(self) -> int:
        """The number that random numbers start from in this process."""
        return 0

    def deal_randomness(self, seed: int, commits: int) -> None:
        """Seeds the generators of random numbers of this rank, after a change of the generation.

        Args:
            seed: rank 0's, from the start of the training.
            commits: made so far.
        """


class ObjectState(State):
    """A State of plain objects, which are its attributes.

    A commit copies them deeply: what is kept does not change when they do. They travel as pickles.

    Args:
        bcast_object, get_rank: see State.
        kwargs: the attributes, with their first values.
    """

    def __init__(
        self, bcast_object: Callable[[Any], Any], get_rank: Callable[[], int], **kwargs: Any
    ) -> None:
        super().__init__(bcast_object, get_rank)
        self._saved_state: dict[str, Any] = {}
        for name, value in kwargs.items():
            setattr(self, name, value)
        self._saved_state = {name: self._copied(name) for name in kwargs}

    def save(self) -> None:
        self._saved_state = {name: self._copied(name) for name in self._saved_state}

    def restore(self) -> None:
        self._set_attributes(copy.deepcopy(self._saved_state))

    def sync(self) -> None:
        self._sync_attributes()
        self.save()

    def _sync_attributes(self) -> None:
        """Sets rank 0's values and saves nothing, so that `restore` undoes a half of it."""
        if self._saved_state:
            own = {name: getattr(self, name) for name in self._saved_state}
            self._set_attributes(self._bcast_object(own))

    def _set_attributes(self, values: dict[str, Any]) -> None:
        for name, value in values.items():
            setattr(self, name, value)

    def _copied(self, name: str) -> Any:
        try:
            return copy.deepcopy(getattr(self, name))
        except Exception as error:  # an object's own methods may raise anything
            raise UsageError(
                f"{name} of the elastic state cannot be copied, so that no commit can keep it: "
                f"{error}"
            ) from error


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
        must_reset = False
        while True:
            try:
                if must_reset:
                    _reset(reset)
                    must_reset = False
                    state.on_reset()
                _take_part(state)
                return func(state, *args, **kwargs)
            except HostsUpdatedInterrupt:
                if PROCESS.worker is None:
                    raise
            except Exception as error:
                failure = error if isinstance(error, CollectiveError) else failure_of(error)
                worker = PROCESS.worker
                if failure is None or worker is None or isinstance(failure, _MISTAKES):
                    raise
                worker.note_failure(failure)
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
    if worker is None:
        state.sync()
        return
    place = worker.place
    assert place is not None
    is_first = place.generation == 0
    if place.must_sync or not state.is_shared:
        state.sync()
    state.is_shared = True
    seed = state.seed() if worker.seed is None else worker.seed
    head = objects.broadcast_object((worker.commits, seed), 0)
    commits, worker.seed = head
    if not is_first:
        state.deal_randomness(worker.seed, commits)
    worker.note_synced(commits)


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


def first_seed() -> int:
    """A number that follows from the generators of Python and NumPy as they are."""
    states = pickle.dumps((random.getstate(), np.random.get_state()))
    return _hashed(states)


def dealt_seed(seed: int, commits: int, *more: object) -> int:
    """What this rank's generators begin with after a change of the generation; 64 bits.

    Args:
        seed: rank 0's, from the start of the training.
        commits: made so far.
        more: which of several generators.
    """
    words = [seed, commits, runtime.rank(), *more]
    return _hashed(" ".join(map(str, words)).encode())


def _hashed(data: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(data, digest_size=_SEED_BYTES).digest(), "little")


def _form_anew() -> None:
    runtime.shutdown()
    runtime.init()
