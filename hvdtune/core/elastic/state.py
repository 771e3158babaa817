"""What is kept of a training, to go back to and to go on from."""

from __future__ import annotations

import copy
import queue
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from hvdtune.core.elastic.commit_files import CommitOrder, CommitWriter, newest_commit
from hvdtune.core.elastic.parts import Agreement, Parts, PartStore, PerRank
from hvdtune.core.elastic.samples import SampleLedger
from hvdtune.core.rank import handles, objects, runtime
from hvdtune.core.rank.process import PROCESS
from hvdtune.errors import HostsUpdatedInterrupt, UsageError

_NOTHING_NEW: Final = -1
# Horovod's numbers for changes of the hosts; 3 is both.
_REMOVED: Final = 1
_ADDED: Final = 2


@dataclass
class Course:
    """How far a training has come.

    Attributes:
        commits: how often its state was committed.
        training: eight digits that tell its commits from others'.
        first_seed: rank 0's at the start, None before it is told.
        is_shared: whether all ranks have begun with rank 0's state.
    """

    commits: int = 0
    training: str = "00000000"
    first_seed: int | None = None
    is_shared: bool = False


class HostMessages(queue.Queue[tuple[float, int]]):
    """The news of hosts that a State has not looked at, as Horovod's State has them: when each
    came, in seconds, and what happened (1: hosts removed, 2: added, 3: both).

    The launcher's news reach rank 0. Thread rule: one thread reads; any may `put`.
    """

    def qsize(self) -> int:
        self._take_launchers()
        return super().qsize()

    def empty(self) -> bool:
        self._take_launchers()
        return super().empty()

    def take(self) -> list[tuple[float, int]]:
        """All messages, the oldest first."""
        return [self.get_nowait() for _ in range(self.qsize())]

    def _take_launchers(self) -> None:
        worker = PROCESS.worker
        update = None if worker is None else worker.take_update()
        if update is not None:
            self.put((time.time(), _ADDED if update.added else _REMOVED))


class State:
    """What a training is made of, as Horovod's `hvd.elastic.State`; a base to derive from.

    Args:
        bcast_object: called with an object, returns that of rank 0.
        get_rank: returns this process's rank.
    """

    _writer: CommitWriter | None = None
    _parts: PartStore | None = None  # where there are PerRank values

    def __init__(self, bcast_object: Callable[[Any], Any], get_rank: Callable[[], int]) -> None:
        self._bcast_object = bcast_object
        self._rank = get_rank
        self._reset_callbacks: list[Callable[[], Any]] = []
        self._host_messages = HostMessages()
        self._last_updated_timestamp = 0.0

    def of_rank_0(self, value: Any) -> Any:
        """Rank 0's value, on all ranks."""
        return self._bcast_object(value)

    def register_reset_callbacks(self, callbacks: Iterable[Callable[[], Any]]) -> None:
        """Calls these in every later generation, before rank 0's state is sent: to fit a learning
        rate to `hvd.size()`, say."""
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """Calls `reset`, then what was registered."""
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def on_hosts_updated(self, timestamp: float, update_res: int) -> None:
        """Has the next `commit` or `check_host_updates` end the generation, as news of hosts do.

        The launcher's news need no such call. Of an elastic job's ranks rank 0's call counts.

        Args:
            timestamp: when the hosts changed, in seconds.
            update_res: 1: hosts were removed, 2: added, 3: both; 0: nothing happened.
        """
        messages_of(self).put((timestamp, int(update_res)))

    def commit(self, to_disk: str | Path | None = None, keep: int = 3) -> None:
        """Keeps the state in memory, to go back to after a failure, and looks for new hosts.

        All ranks call it after the same step.

        Args:
            to_disk: a folder in which rank 0 writes the state, too, while the training goes on: a
                file for each commit, whole or not there. A commit that comes while one is being
                written waits, and gives way to the next. See `resume`.
            keep: the number of files that stay there, at least 1; older ones are removed.

        A commit that cannot be written, to a full disk for one, is a warning: the one in memory
        counts. See `flush`.

        Raises:
            HostsUpdatedInterrupt: see `check_host_updates`.
            UsageError: a value cannot be copied.
        """
        course, store = course_of(self), parts_of(self)
        version = None
        if store is not None:
            version = store.prepare(_values_of(self, store), course.commits + 1)
        # From here on nothing comes from elsewhere: all that this process keeps is of one commit.
        self._save_what_is_right()
        if store is not None:
            store.settle(version)
        course.commits += 1
        if PROCESS.worker is not None:
            PROCESS.worker.note_commit()
        for ledger in _ledgers_of(self):
            ledger.note_commit(course.commits)
        if to_disk is not None:
            self._write(Path(to_disk), course, keep)
        if self._parts is None:
            self.check_host_updates()  # which a class of the script's may have made its own
        else:
            self._interrupt_for_hosts()

    def _save_what_is_right(self) -> None:
        """Saves when a GPU is done with what was submitted: until then a rank may be lost, and what
        is computed from the results worthless."""
        handles.await_gpu()
        self.save()

    def _write(self, folder: Path, course: Course, keep: int) -> None:
        parts = None if self._parts is None else self._parts.gather()
        if self._rank() == 0:
            if self._writer is None:
                self._writer = CommitWriter()
            content = {"seed": course.first_seed, "state": self.snapshot(), "parts": None}
            has_pickles = False
            if parts is not None:
                content["parts"], has_pickles = parts.plain(), parts.has_pickles()
            done = course.commits, course.training
            self._writer.write(CommitOrder(folder, *done, content, keep, has_pickles))

    def resume(self, from_disk: str | Path) -> bool:
        """Takes up the newest commit of a folder; called before the training begins.

        What rank 0 finds there is what all ranks begin with. A file that is not whole is passed
        over with a warning. A folder or file that another user can write to is refused, and so is
        a pickle that this user has not written: it could run any code.

        Returns whether there was one.

        Raises:
            UsageError: there is such a file, `from_disk` is no folder, or the commit keeps
                other things.
        """
        if Path(from_disk).is_file():
            raise UsageError(f"{from_disk} is a file: pass the folder of the commits")
        found = newest_commit(Path(from_disk))
        if found is None:
            return False
        parts = found.content.get("parts")
        if (parts is None) != (self._parts is None):
            has, wants = ("no", "some") if parts is None else ("some", "no")
            raise UsageError(
                f"The commit contains {has} PerRank values; this training has {wants}."
            )
        if self._parts is not None and parts is not None:
            self._parts.adopt(Parts.from_plain(parts), is_trusted=found.is_proved)
        self.adopt(found.content["state"])
        course = course_of(self)
        course.commits, course.training = found.commits, found.training
        course.first_seed = found.content["seed"]
        return True

    def record_samples(self, count: int) -> None:
        """Tells the launcher's account that all ranks together have trained so many samples since
        the last call. ElasticSampler.record_batch tells it by itself."""
        if PROCESS.worker is not None:
            PROCESS.worker.note_samples(count)

    def flush(self) -> None:
        """Returns when the commits for the disk are there.

        Raises UsageError where one since the last call could not be written.
        """
        if self._writer is not None:
            self._writer.flush()

    def check_host_updates(self) -> None:
        """Raises HostsUpdatedInterrupt on all ranks where the launcher wants another generation.

        All ranks call it after the same step; it costs the broadcast of a number.

        Raises UsageError for a State with PerRank values, which would not be those of a commit.
        """
        if self._parts is not None:
            raise UsageError("a State with PerRank values checks for new hosts only in commit()")
        self._interrupt_for_hosts()

    def _interrupt_for_hosts(self) -> None:
        news = _NOTHING_NEW
        if PROCESS.worker is None or runtime.rank() == 0:
            news = self._news()
        if PROCESS.worker is not None:
            (rank_0s,) = objects.broadcast_arrays([np.array([news])], 0)
            news = int(rank_0s[0])
        if news != _NOTHING_NEW:
            raise HostsUpdatedInterrupt(skip_sync=news == _REMOVED)

    def _news(self) -> int:
        """Return the changes of the hosts since the last call, as one number."""
        found = 0
        for timestamp, update_res in messages_of(self).take():
            found |= update_res
            self._last_updated_timestamp = timestamp
        return found or _NOTHING_NEW

    def snapshot(self) -> Any:
        """What was saved last, for a file. The State does not change it any more."""
        raise UsageError(f"{type(self).__name__} has no snapshot(), which commit(to_disk=) needs")

    def adopt(self, snapshot: Any) -> None:
        """Goes to a snapshot as if it had been saved last. Raises UsageError for another's."""
        raise UsageError(f"{type(self).__name__} has no adopt(), which resume() needs")

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
    Of an ElasticSampler how far it is.

    Args:
        bcast_object, get_rank: see State.
        kwargs: the attributes, with their first values. A PerRank is its value, which no other
            rank's replaces.
    """

    def __init__(
        self, bcast_object: Callable[[Any], Any], get_rank: Callable[[], int], **kwargs: Any
    ) -> None:
        super().__init__(bcast_object, get_rank)
        check_free(type(self), kwargs)
        self._saved_state: dict[str, Any] = {}
        own = {name: value for name, value in kwargs.items() if isinstance(value, PerRank)}
        if own:
            self._parts = PartStore(own)
            self._set_attributes({name: kwargs.pop(name).value for name in own})
        for name, value in kwargs.items():
            setattr(self, name, value)
        self._saved_state = {name: self._copied(name) for name in kwargs}

    def save(self) -> None:
        self._saved_state = {name: self._copied(name) for name in self._saved_state}

    def restore(self) -> None:
        self._set_attributes(copy.deepcopy(self._saved_state))
        if self._parts is not None:
            self._set_attributes(self._parts.own() or {})

    def sync(self) -> None:
        self._sync_attributes()
        self._save_what_is_right()

    def snapshot(self) -> Any:
        return dict(self._saved_state)

    def adopt(self, snapshot: Any) -> None:
        check_names(snapshot, self._saved_state)
        self._saved_state = dict(snapshot)
        self.restore()

    def reset(self) -> None:
        for ledger in _ledgers_of(self):
            ledger.reset()

    def _sync_attributes(self) -> None:
        """Sets rank 0's values and saves nothing, so that `restore` undoes a half of it."""
        if self._saved_state:
            own = {name: self._content(name) for name in self._saved_state}
            self._set_attributes(self._bcast_object(own))

    def _set_attributes(self, values: dict[str, Any]) -> None:
        for name, value in values.items():
            there = getattr(self, name, None)
            if isinstance(there, SampleLedger):
                there.load_state_dict(value)
            else:
                setattr(self, name, value)

    def _content(self, name: str) -> Any:
        value = getattr(self, name)
        return value.state_dict() if isinstance(value, SampleLedger) else value

    def _copied(self, name: str) -> Any:
        try:
            return copy.deepcopy(self._content(name))
        except Exception as error:  # an object's own methods may raise anything
            what = objects.part_at_fault(self._content(name), name, error, copy.deepcopy, "copied")
            raise UsageError(
                f"cannot commit {name} of the elastic state: {what}. Leave it out and create it "
                "on each rank, or give its class a __deepcopy__"
            ) from error


def check_free(kind: type, names: Iterable[str]) -> None:
    """Raises UsageError where a value would hide a method of the State."""
    for name in names:
        if callable(getattr(kind, name, None)):
            raise UsageError(
                f"{kind.__name__}({name}=...) would hide {kind.__name__}.{name}(): give the value "
                "another name"
            )


def course_of(state: State) -> Course:
    """Return how far the training of a State has come. Its attributes are the script's to name."""
    course: Course = vars(state).setdefault("_course", Course())
    return course


def messages_of(state: State) -> HostMessages:
    """The news of hosts of a State, whose class may not have called State's `__init__`."""
    found: HostMessages = vars(state).setdefault("_host_messages", HostMessages())
    return found


def finish_writing(state: State) -> None:
    """Waits for the commits for the disk. One that cannot be written is a warning."""
    writer: CommitWriter | None = vars(state).get("_writer")
    if writer is not None:
        writer.finish()


def parts_of(state: State) -> PartStore | None:
    """What a State has for its rank alone, None where it has nothing. See `course_of`."""
    found: PartStore | None = vars(state).get("_parts")
    return found


def take_parts(state: State, agreed: Agreement) -> None:
    """Gives a State its rank's PerRank values, of those that were agreed on, and copies them.

    Raises StateLostError on all ranks where some are lost.
    """
    store = parts_of(state)
    assert store is not None
    for name, value in store.divide(agreed).items():
        setattr(state, name, value)
    store.settle(store.prepare(_values_of(state, store), course_of(state).commits))


def _values_of(state: State, store: PartStore) -> dict[str, Any]:
    return {name: getattr(state, name) for name in store.names}


def _ledgers_of(state: State) -> list[SampleLedger]:
    return [value for value in vars(state).values() if isinstance(value, SampleLedger)]


def check_names(found: Mapping[str, Any], own: Mapping[str, Any]) -> None:
    """Raises UsageError where a commit keeps other things than the State does."""
    if found.keys() != own.keys():
        kept, wanted = (", ".join(sorted(names)) or "nothing" for names in (found, own))
        raise UsageError(f"The commit contains {kept}; this training's state has {wanted}.")
