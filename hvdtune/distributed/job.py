"""The runtime of a process group."""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, cast

from hvdtune.core.config import environment
from hvdtune.core.job import rendezvous
from hvdtune.core.rank import process
from hvdtune.core.rank.process import PROCESS
from hvdtune.distributed.steps import StepMarker
from hvdtune.distributed.store_board import GroupPlace, StoreBoard
from hvdtune.errors import RankLostError

if TYPE_CHECKING:
    from hvdtune.core import _native
    from hvdtune.core.config.environment import Config

_MOST_SHOWN: Final = 16
# Between two looks for news of a lost rank.
_LOOK_S: Final = 0.001
# The environment of a group's runtime: the place of this process is that in the group.
_ALONE: Final = {"HVDTUNE_STARTED_BY": "none"}


class GroupRuntime:
    """The runtime of one group.

    The first group of a process has the runtime that `hvdtune.core` counts as this process's job:
    the timeline, the tuner and `hvdtune.torch` know it. Every other group has one of its own.

    Attributes:
        count: the number of the meeting of this name with this store.
        is_of_process: whether it is the first group's.
        on_step: called when the process has ended a step; of the first group only.
    """

    def __init__(
        self,
        runtime: _native.Runtime,
        count: int,
        ranks: tuple[int, ...],
        *,
        is_of_process: bool,
    ) -> None:
        """See GroupPlace for `ranks`."""
        self.native = runtime
        self.count = count
        self._ranks = ranks
        self.is_of_process = is_of_process
        self.on_step: list[Callable[[], None]] = []
        _GROUPS.append(self)
        self._steps = StepMarker(self._end_step) if is_of_process else None
        if not is_of_process:
            _OWN.append(runtime)

    def leave(self) -> None:
        """Ends the runtime; operations in flight fail. Does nothing again or in a child of fork."""
        if self in _GROUPS:
            _GROUPS.remove(self)
        if self._steps is not None:
            self._steps.close()
        if self.is_of_process:
            if PROCESS.runtime is self.native:
                PROCESS.leave()
        elif self.native in _OWN:
            _OWN.remove(self.native)
            self.native.shutdown()

    def _end_step(self) -> None:
        for call in self.on_step:
            call()
        if PROCESS.runtime is not None and not PROCESS.marks_steps:
            PROCESS.runtime.mark_step()

    def loss(self) -> RankLostError | None:
        """The error if the group has lost a member, with that one's rank in the job; else None."""
        loss = self.native.loss()
        if not isinstance(loss, RankLostError):
            return None
        named = 0 <= loss.rank < len(self._ranks)
        return RankLostError(str(loss), self._ranks[loss.rank] if named else -1)


def left_key(count: int, rank: int) -> str:
    """Return the key that is in the store when member `rank` has left the `count`-th group.

    For members that have not met that one yet: the others get the news from the core.
    """
    return f"hvdtune/{count}/left/{rank}"


def find_loss(wait_s: float = 0.0, other: _native.Runtime | None = None) -> RankLostError | None:
    """Return the loss of the first group of this process, which has all ranks.

    This is the process that was killed, not one that ended because of that: the first group
    informs all ranks before any of them can end.

    Args:
        wait_s: how long to wait for the news.
        other: a runtime; returns None if it is that of the first group.
    """
    deadline_s = time.monotonic() + wait_s
    while news_can_come(other):
        loss = _GROUPS[0].loss()
        left_s = deadline_s - time.monotonic()
        if loss is not None or left_s <= 0:
            return loss
        time.sleep(min(_LOOK_S, left_s))
    return None


def news_can_come(other: _native.Runtime | None) -> bool:
    """Return whether this runtime is not that of the first group of this process."""
    return bool(_GROUPS) and _GROUPS[0].native is not other


_GROUPS: Final[list[GroupRuntime]] = []  # that were not left
_OWN: Final[list[_native.Runtime]] = []  # of groups other than the first
_FOR_STORE: Final[list[_native.Runtime]] = []  # of `form_for_store`, not yet taken by a group


def _forget_after_fork() -> None:
    for group in _GROUPS:  # never destroyed: that would wait for threads that are not here
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(group.native))
        group.native = cast("_native.Runtime", process.Refusal())
    _OWN.clear()
    _GROUPS.clear()
    _FOR_STORE.clear()


os.register_at_fork(after_in_child=_forget_after_fork)


def form(place: GroupPlace) -> GroupRuntime:
    """Joins the job of a group; returns when all of its ranks have come.

    Raises:
        DistStoreError: not every rank has called within the timeout.
        RendezvousError: the ranks have called, but did not reach each other.
        UsageError: a variable of the environment has an invalid value.
    """
    if _FOR_STORE and _FOR_STORE.pop() is PROCESS.runtime:
        return GroupRuntime(PROCESS.native(), 0, place.ranks, is_of_process=True)
    own = _own_config(place)
    if PROCESS.runtime is not None:
        place = dataclasses.replace(place, is_hopeless=lambda: find_loss() is not None)
        return _form_beside(place, own)
    launched = _launched(place)
    board = StoreBoard(place, own, is_launched=launched is not None)
    if launched is not None and board.are_launched:
        PROCESS.form(launched, None, _any_size)
    else:
        PROCESS.form(own, None, _any_size, board if place.size > 1 else None)
    return GroupRuntime(PROCESS.native(), board.count, place.ranks, is_of_process=True)


def form_for_store(timeout_s: float) -> None:
    """Joins the job that the launcher's variables describe, for the next group of all ranks.

    Does nothing if this process is in a job. Raises as `hvdtune.core.rank.runtime.init` does.

    Args:
        timeout_s: of an operation.
    """
    if PROCESS.runtime is not None:
        return
    config = environment.Config.from_environ()
    config = _with_timeout(config, timeout_s)
    if PROCESS.form(config, None, _any_size):
        _FOR_STORE[:] = [PROCESS.native()]


@functools.cache
def hang_warning_s() -> float:
    """Return the time after which a wait is explained on standard error; 0 for never."""
    config = environment.Config.from_environ(environment.own_environ() | _ALONE)
    levels = environment.LOG_LEVELS
    is_shown = levels.index(config.log_level) <= levels.index("warning")
    return config.timeouts.hang_warning_s if is_shown else 0.0


def form_beside(place: GroupPlace) -> GroupRuntime:
    """Joins as `form`, but never as the job of the process; its operations may take any time."""
    return _form_beside(place, _with_timeout(_own_config(place), 0.0))


def _form_beside(place: GroupPlace, config: Config) -> GroupRuntime:
    """Joins a job besides that of the process, which alone is recorded."""
    board = StoreBoard(place, config, is_launched=False)
    config = dataclasses.replace(
        config, recording=dataclasses.replace(config.recording, timeline="")
    )
    if place.size == 1:
        runtime = process.start_beside(config)
    else:
        _, runtime = rendezvous.meet(config, board, process.start_beside, process.BESIDE)
    return GroupRuntime(runtime, board.count, place.ranks, is_of_process=False)


def _own_config(place: GroupPlace) -> Config:
    """Return the environment's configuration with this process's place in the group."""
    config = environment.Config.from_environ(environment.own_environ() | _ALONE)
    names = names_of(place.ranks)
    about = f"in a process group, {names}: " if names else ""
    return dataclasses.replace(
        config,
        place=dataclasses.replace(config.place, rank=place.rank, size=place.size),
        timeouts=dataclasses.replace(
            config.timeouts, hang_abort_s=place.timeout_s, hang_about=about
        ),
    )


def _with_timeout(config: Config, timeout_s: float) -> Config:
    """Return the configuration with this timeout of operations; 0 for none."""
    timeouts = dataclasses.replace(config.timeouts, hang_abort_s=timeout_s)
    return dataclasses.replace(config, timeouts=timeouts)


def names_of(ranks: tuple[int, ...]) -> str:
    """Return a clause with the ranks of a group's members in the job; "" if they are the same."""
    if ranks == tuple(range(len(ranks))):
        return ""
    shown = ", ".join(str(rank) for rank in ranks[:_MOST_SHOWN])
    more = ", ..." if len(ranks) > _MOST_SHOWN else ""
    return f"whose ranks 0 to {len(ranks) - 1} are ranks {shown}{more} of the job"


def _any_size(_: int) -> None:
    pass


def _launched(place: GroupPlace) -> Config | None:
    """Return the launcher's configuration if `hvdtune run` has started the group as its job."""
    environ = environment.inherited_environ()
    if not environ.get("HVDTUNE_RENDEZVOUS"):
        return None
    config = environment.Config.from_environ(environ)
    numbers = config.place.rank, config.place.size
    if not config.rendezvous.port or numbers != (place.rank, place.size):
        return None
    return _with_timeout(config, place.timeout_s)
