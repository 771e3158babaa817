"""A rank's end of an elastic job: requests its place from the launcher for each generation."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from hvdtune.core.job import proof
from hvdtune.core.job.rendezvous import Offer, met_at
from hvdtune.core.job.worker_messages import (
    Arrival,
    Message,
    Messages,
    Placement,
    Progress,
    Raised,
    Removed,
    Training,
    Update,
)
from hvdtune.errors import (
    CollectiveError,
    LaunchError,
    RankLostError,
    RankRemovedError,
    RendezvousError,
)

if TYPE_CHECKING:
    from hvdtune.core.config.environment import Config

T = TypeVar("T")

# A launcher may be out of descriptors for a moment.
_ATTEMPTS: Final = 5
# Minimum interval between two progress reports.
_TELL_EVERY_S: Final = 0.1
_HEADLINE_CHARS: Final = 300


class ElasticWorker:
    """This process as a worker of an elastic job, from the first `init` to its end.

    Thread rule: one thread at a time, as for `init` and `shutdown`.

    Attributes:
        has_state: whether it holds a state of the training that all ranks had.
        commits: the number of commits of that state in this job.
        all_commits: likewise, including those of the file that the training was resumed from.
        samples: trained by all ranks up to that commit, if the script reports them.
        must_sync: whether the other ranks may hold another state.
        place: the latest; None before the first.
    """

    def __init__(self, config: Config) -> None:
        """Raises RendezvousError if the launcher cannot be reached."""
        self.number = config.rendezvous.worker
        self.has_state = False
        self.commits = 0
        self.all_commits = 0
        self.samples = 0
        self._new_samples = 0  # since the last commit
        self._told_s = -math.inf
        self.must_sync = True
        self.place: Placement | None = None
        self._lost: set[int] = set()
        self._why = ""
        self._messages = _connect(config)

    def join(self, config: Config, start: Callable[[Config], T]) -> tuple[Config, T]:
        """Waits for a place and takes it. If its generation cannot form, waits for the next one.

        The launcher ends the wait after its --elastic-timeout.

        Raises:
            RankRemovedError: this worker's host is no longer a part of the job.
            RendezvousError: the launcher has exited.
        """
        while True:
            place = self._await_place()
            placed = dataclasses.replace(
                config,
                place=dataclasses.replace(config.place, rank=place.rank, size=place.size),
                rendezvous=dataclasses.replace(config.rendezvous, generation=place.generation),
            )
            placed = met_at(placed, Offer(place.rendezvous, config.rendezvous.key))
            try:
                return placed, start(placed)
            except RendezvousError:
                self.must_sync = True  # with the ranks of the next one

    def note_failure(self, error: CollectiveError) -> None:
        """Notes that the training returns to its last commit, and the lost rank."""
        self.must_sync = True
        self._why = _headline(error)
        if isinstance(error, RankLostError) and error.rank >= 0:
            self._lost.add(error.rank)

    def note_raised(self, error: Exception) -> None:
        """Reports that the training function ends with an error other than of an operation."""
        self._send(Raised(self.number, _headline(error)))

    def note_state(self, commits: int, samples: int, all_commits: int) -> None:
        """Notes that this worker's state is that of all ranks."""
        self.has_state, self.must_sync = True, False
        self.commits, self.all_commits = commits, all_commits
        self.samples, self._new_samples = samples, 0
        self._told_s = -math.inf

    def note_begin(self) -> None:
        """Reports that all ranks have the state, and the training begins."""
        self._send(Training(self.number, is_on=True))
        self._tell(is_commit=False)

    def note_samples(self, count: int) -> None:
        """Adds samples that all ranks together have trained."""
        self._new_samples += count

    def note_commit(self) -> None:
        """Notes a commit of the state, and may report it."""
        self.commits, self.all_commits = self.commits + 1, self.all_commits + 1
        self.samples, self._new_samples = self.samples + self._new_samples, 0
        now_s = time.monotonic()
        # The first of a generation is reported at once.
        if now_s - self._told_s >= _TELL_EVERY_S:
            self._told_s = now_s
            self._tell(is_commit=True)

    def note_end(self) -> None:
        """Reports that the training function returns."""
        self._tell(is_commit=True)
        self._send(Training(self.number, is_on=False))

    def _tell(self, *, is_commit: bool) -> None:
        place = self.place
        if place is not None and place.rank == 0:
            done = self.samples, self.commits, self.all_commits
            self._send(Progress(place.generation, *done, is_commit))

    def _send(self, message: Message) -> None:
        # Without the launcher this process exits.
        with contextlib.suppress(OSError):
            self._messages.send(message)

    def take_update(self) -> Update | None:
        """Return the launcher's request to end the generation at the next commit, if any."""
        found = None
        while (message := self._messages.take()) is not None:
            if isinstance(message, Update):
                found = message
        return found

    def _await_place(self) -> Placement:
        before = -1 if self.place is None else self.place.generation
        lost, self._lost = tuple(sorted(self._lost)), set()
        why, self._why = self._why, ""
        said = Arrival(self.number, before, self.has_state, self.commits, self.must_sync, lost, why)
        try:
            self._messages.send(said)
            while True:
                message = self._messages.receive()
                if isinstance(message, Placement):
                    self.place = message
                    return message
                if isinstance(message, Removed):
                    raise RankRemovedError("This rank's host is no longer part of the job.")
        except (OSError, RendezvousError) as error:
            raise RendezvousError(f"The launcher of this job has exited: {error}") from None


def _connect(config: Config) -> Messages:
    rendezvous = config.rendezvous
    address = rendezvous.address, rendezvous.port
    for attempt in range(_ATTEMPTS):
        try:
            connection, session = proof.dial(
                address, rendezvous.key, proof.WORKER, proof.FIRST, config.timeouts.start_s
            )
            return Messages(connection, session, dialed=True)
        except proof.CutOffError as error:
            if attempt == _ATTEMPTS - 1:
                raise _unreachable(config, error) from None
        except (OSError, LaunchError) as error:
            raise _unreachable(config, error) from None
    raise AssertionError


def _headline(error: Exception) -> str:
    """Return one line about an error for the launcher, with the error's name in scripts."""
    name = "HorovodInternalError" if type(error) is CollectiveError else type(error).__name__
    text = " ".join(str(error).split())
    return f"{name}: {text}"[:_HEADLINE_CHARS] if text else name


def _unreachable(config: Config, error: Exception) -> RendezvousError:
    where = f"{config.rendezvous.address} port {config.rendezvous.port}"
    return RendezvousError(f"Cannot reach the launcher of this job at {where}: {error}")
