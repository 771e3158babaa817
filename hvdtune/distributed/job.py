"""The runtime of a process group: its ranks find each other through torch's store."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import functools
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from torch import distributed

from hvdtune.core.config import environment
from hvdtune.core.config.key_source import KEY_BYTES
from hvdtune.core.job import meeting, route
from hvdtune.core.job.channel import JobChannel
from hvdtune.core.rank import process
from hvdtune.core.rank.process import PROCESS
from hvdtune.distributed.steps import StepMarker
from hvdtune.errors import RankLostError, UsageError

if TYPE_CHECKING:
    from hvdtune.core import _native
    from hvdtune.core.config.environment import Config

T = TypeVar("T")

_MOST_SHOWN: Final = 16
_LOOPBACK: Final = "127.0.0.1"
# Between two looks into the store, where a wait must end when the group is left.
_FIRST_LOOK_S: Final = 0.001
_LAST_LOOK_S: Final = 0.05
# What HVDTUNE_STARTED_BY says where nobody else's variables are to tell this process its place.
_ALONE: Final = {"HVDTUNE_STARTED_BY": "none"}


@dataclasses.dataclass(frozen=True)
class GroupPlace:
    """Where the members of a group find each other, and which of them this process is.

    `ranks` are the members' numbers in the job, in the order of those in the group. `is_hopeless`
    tells whether to wait for the others is in vain.
    """

    store: Any
    rank: int
    size: int
    timeout_s: float
    ranks: tuple[int, ...]
    is_hopeless: Callable[[], bool] | None = None


class GroupRuntime:
    """The runtime of one group.

    The first group of a process has the runtime that `hvdtune.core` counts as this process's job:
    the timeline, the tuner and `hvdtune.torch` know it. Every other group has one of its own.

    Attributes:
        count: how many groups of this name its members had formed with this store before.
        is_of_process: whether it is the first group's.
        on_step: what to call when the process has ended a step, of the first group only.
    """

    def __init__(
        self,
        runtime: _native.Runtime,
        count: int,
        ranks: tuple[int, ...],
        *,
        is_of_process: bool,
    ) -> None:
        """`ranks`: as of GroupPlace."""
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
        """Ends the runtime; what is in flight fails. Again, or in a child of fork, nothing."""
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
        """That the group has lost a member, which the error's `rank` names by its rank of the job.

        None where it has not.
        """
        loss = self.native.loss()
        if not isinstance(loss, RankLostError):
            return None
        named = 0 <= loss.rank < len(self._ranks)
        return RankLostError(str(loss), self._ranks[loss.rank] if named else -1)


def left_key(count: int, rank: int) -> str:
    """In the store of a group that is its `count`-th: member `rank` has left it.

    Only who has yet to meet that member needs this: the others hear of it from the core.
    """
    return f"hvdtune/{count}/left/{rank}"


def find_loss(wait_s: float = 0.0, beside: _native.Runtime | None = None) -> RankLostError | None:
    """What `GroupRuntime.loss` says of the first group of this process, which has all ranks.

    A process that was killed is lost to it, and so are no others that have ended because of that:
    it tells all of its ranks before any of them can.

    Args:
        wait_s: how long to wait for such news.
        beside: None where this is the runtime of the first group.
    """
    deadline_s = time.monotonic() + wait_s
    while news_can_come(beside):
        loss = _GROUPS[0].loss()
        left_s = deadline_s - time.monotonic()
        if loss is not None or left_s <= 0:
            return loss
        time.sleep(min(_FIRST_LOOK_S, left_s))
    return None


def news_can_come(beside: _native.Runtime | None) -> bool:
    """Whether the first group of this process is another one than that of this runtime."""
    return bool(_GROUPS) and _GROUPS[0].native is not beside


_GROUPS: Final[list[GroupRuntime]] = []  # those that were not left
_OWN: Final[list[_native.Runtime]] = []  # those that are no process's job
_FOR_STORE: Final[list[_native.Runtime]] = []  # of `form_for_store`, which no group has yet


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
        UsageError: a variable of the environment has a value that cannot be.
    """
    if _FOR_STORE and _FOR_STORE.pop() is PROCESS.runtime:
        return GroupRuntime(PROCESS.native(), 0, place.ranks, is_of_process=True)
    is_free = PROCESS.runtime is None
    if not is_free:
        place = dataclasses.replace(place, is_hopeless=lambda: find_loss() is not None)
    launched = _launched(place) if is_free else None
    own = _own_config(place)
    met = _Meeting(place, own.place.host, is_launched=launched is not None)
    if not is_free:
        return met.form_beside(own)
    if met.all_launched and launched is not None:
        PROCESS.form(launched, None, _any_size)
    else:
        PROCESS.form(own, None, _any_size, met.join if place.size > 1 else None)
    return GroupRuntime(PROCESS.native(), met.count, place.ranks, is_of_process=True)


def form_for_store(timeout_s: float) -> None:
    """Joins the job that the launcher's variables describe; the next group of all ranks has it.

    Does nothing where this process is in a job. Raises as `hvdtune.core.rank.runtime.init` does.

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
    """After how long a wait is explained on standard error; 0 for never."""
    config = environment.Config.from_environ(environment.own_environ() | _ALONE)
    levels = environment.LOG_LEVELS
    is_shown = levels.index(config.log_level) <= levels.index("warning")
    return config.timeouts.hang_warning_s if is_shown else 0.0


def form_beside(place: GroupPlace) -> GroupRuntime:
    """As `form`, but never the job of the process, and its operations may wait for any time."""
    own = _with_timeout(_own_config(place), 0.0)
    return _Meeting(place, own.place.host, is_launched=False).form_beside(own)


def _own_config(place: GroupPlace) -> Config:
    """What the environment says, but for this process's place."""
    config = environment.Config.from_environ(environment.own_environ() | _ALONE)
    names = told_ranks(place.ranks)
    about = f"in a process group, {names}: " if names else ""
    return dataclasses.replace(
        config,
        place=dataclasses.replace(config.place, rank=place.rank, size=place.size),
        timeouts=dataclasses.replace(
            config.timeouts, hang_abort_s=place.timeout_s, hang_about=about
        ),
    )


def _with_timeout(config: Config, timeout_s: float) -> Config:
    """Return this with the timeout of operations, 0 for none."""
    timeouts = dataclasses.replace(config.timeouts, hang_abort_s=timeout_s)
    return dataclasses.replace(config, timeouts=timeouts)


def told_ranks(ranks: tuple[int, ...]) -> str:
    """Which ranks of the job the ranks of a group are, "" where they are the same."""
    if ranks == tuple(range(len(ranks))):
        return ""
    shown = ", ".join(str(rank) for rank in ranks[:_MOST_SHOWN])
    more = ", ..." if len(ranks) > _MOST_SHOWN else ""
    return f"whose ranks 0 to {len(ranks) - 1} are ranks {shown}{more} of the job"


def _any_size(_: int) -> None:
    pass


def _launched(place: GroupPlace) -> Config | None:
    """How `hvdtune run` has started this process, where the group is its whole job."""
    environ = environment.inherited_environ()
    if not environ.get("HVDTUNE_RENDEZVOUS"):
        return None
    config = environment.Config.from_environ(environ)
    numbers = config.place.rank, config.place.size
    if not config.rendezvous.port or numbers != (place.rank, place.size):
        return None
    return _with_timeout(config, place.timeout_s)


class _Meeting:
    """What the members say to each other in the store before they meet.

    A group of the same name may be formed again, with the same store: each member counts how often
    it has come, and those of one count belong together.
    """

    def __init__(self, place: GroupPlace, host: str, *, is_launched: bool) -> None:
        self._place = place
        self.count = place.store.add(f"hvdtune/comes/{place.rank}", 1)
        hello = {"host": host, "launched": is_launched}
        place.store.set(self._key(place.rank), json.dumps(hello))
        hellos = self._hellos()
        self.all_launched = all(hello["launched"] for hello in hellos)
        self._is_on_one_host = len({hello["host"] for hello in hellos}) == 1

    def _key(self, what: object) -> str:
        return f"hvdtune/{self.count}/{what}"

    def _get(self, key: str) -> Mapping[str, Any]:
        self._await([key])
        found: Mapping[str, Any] = json.loads(self._place.store.get(key))
        return found

    def _await(self, keys: list[str]) -> None:
        """Returns when the store has them. Raises DistStoreError when the time is over."""
        place = self._place
        if place.is_hopeless is None:
            place.store.wait(keys, timedelta(seconds=place.timeout_s))
            return
        deadline_s = time.monotonic() + place.timeout_s
        pause_s = _FIRST_LOOK_S
        while not place.store.check(keys):
            if place.is_hopeless() or time.monotonic() > deadline_s:
                raise distributed.DistStoreError("the others have not come")
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LAST_LOOK_S)

    def _hellos(self) -> list[Mapping[str, Any]]:
        keys = [self._key(rank) for rank in range(self._place.size)]
        try:
            self._await(keys)
        except RuntimeError:  # a file store knows no other
            missing = [str(rank) for rank, key in enumerate(keys) if not self._has(key)]
            if str(self._place.rank) in missing:
                raise distributed.DistStoreError(
                    f"rank {self._place.rank} of {self._place.size}: the store does not answer any "
                    "more; whoever holds it, mostly rank 0, has ended"
                ) from None
            raise distributed.DistStoreError(
                f"rank {self._place.rank} of {self._place.size}: no word from rank "
                f"{', '.join(missing)} in {self._place.timeout_s:g} s"
            ) from None
        return [self._get(key) for key in keys]

    def _has(self, key: str) -> bool:
        with contextlib.suppress(RuntimeError):
            return bool(self._place.store.check([key]))
        return False

    def form_beside(self, config: Config) -> GroupRuntime:
        """Joins a job beside that of the process, which alone is recorded."""
        config = dataclasses.replace(
            config, recording=dataclasses.replace(config.recording, timeline="")
        )
        if self._place.size == 1:
            runtime = process.start_beside(config)
        else:
            _, runtime = self.join(config, process.start_beside, process.BESIDE)
        return GroupRuntime(runtime, self.count, self._place.ranks, is_of_process=False)

    def join(
        self, config: Config, start: Callable[[Config], T], generation: int = meeting.GENERATION
    ) -> tuple[Config, T]:
        """As hvdtune.core.job.meeting.join, through the store."""
        if self._place.rank != 0:
            offer = self._get(self._key("offer"))
            config = meeting.met_at(config, offer["address"], bytes.fromhex(offer["key"]))
            return config, start(config)
        key = os.urandom(KEY_BYTES)
        wait_s = config.timeouts.start_s
        host = listening_address(config, is_on_one_host=self._is_on_one_host)
        channel = JobChannel(key, config.place.size, host, wait_s, generation)
        with contextlib.closing(channel), _aborted_where(self._place.is_hopeless, channel):
            offer = {"address": channel.address, "key": key.hex()}
            self._place.store.set(self._key("offer"), json.dumps(offer))
            config = meeting.met_at(config, channel.address, key)
            started = start(config)
            channel.await_formed(wait_s)
        return config, started


@contextlib.contextmanager
def _aborted_where(is_hopeless: Callable[[], bool] | None, channel: JobChannel) -> Iterator[None]:
    """The start-up fails as soon as to wait for the others is in vain."""
    if is_hopeless is None:
        yield
        return
    is_over = threading.Event()

    def look() -> None:
        while not is_over.wait(_LAST_LOOK_S):
            if is_hopeless():
                channel.abort("the others have not come")
                return

    thread = threading.Thread(target=look, name="hvdtune-meeting", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def listening_address(config: Config, *, is_on_one_host: bool) -> str:
    """Where rank 0 listens for the others. Raises UsageError where they could not reach it."""
    if is_on_one_host:
        return _LOOPBACK
    address = config.rendezvous.own_address or route.default_address()
    if not address:
        raise UsageError(
            "no way leads from this host to others: set HVDTUNE_INTERFACE to the interface that "
            "the hosts have in common"
        )
    return address
