"""Who is in the next generation of an elastic job, and when it forms. Pure: no socket, no clock.

A worker is a process that the launcher has started; a worker that is in a generation is its member
and has a rank there. What happens is told by `note_...`; `decide` then says what is to be done, and
`next_deadline_s` when to ask again although nothing has happened.

    GATHERING   no job: waits for the workers that live to call `init`
    FORMING     they were told their places and connect to each other
    RUNNING     they train; newcomers and removals wait for the next commit

A member that is lost is not seen by its silence while the others train: they, whose runtime has
given it up, come back and accuse it. Of several that are lost at once they may accuse one only; of
those that are then waited for, the launcher sees which can say nothing any more.

Members whose slots are no longer listed leave at a commit, once enough others are there and one of
these has the state. Until then, and for the elastic timeout at most, they train on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum

from hvdtune.launcher.decisions import Abandon, Finish, Kill, Start
from hvdtune.launcher.elastic.slots import Cooldown, FailedSlot, SlotName, Slots
from hvdtune.plural import counted


@dataclass(frozen=True)
class ElasticLimits:
    """How an elastic job is run; times are in seconds.

    `hosts_are_fixed`: no host comes that is not there from the start. `reset_limit` None is none.
    """

    min_ranks: int
    max_ranks: int
    elastic_timeout_s: float = 600.0
    start_timeout_s: float = 30.0
    heartbeat_timeout_s: float = 2.0
    reset_limit: int | None = None
    cooldown: Cooldown | None = None
    hosts_are_fixed: bool = False


@dataclass(frozen=True)
class Form:
    """These workers are the next generation, in the order of their ranks.

    `must_sync`: rank 0 has to send its state to the others, of which some have none or another one.
    """

    generation: int
    members: tuple[int, ...]
    must_sync: bool


@dataclass(frozen=True)
class Notify:
    """The members are to end their generation at the next commit. `added`: there are newcomers."""

    added: bool


@dataclass(frozen=True)
class Dismiss:
    """The worker, which waits in `init`, is no longer wanted and is to be told so."""

    worker: int


@dataclass(frozen=True)
class Remark:
    """The user is to be told."""

    sentence: str


Action = Start | Kill | Form | Abandon | Notify | Dismiss | Remark | Finish


class JobPhase(Enum):
    GATHERING = "gathering"
    FORMING = "forming"
    RUNNING = "running"


class Status(Enum):
    STARTING = "starting"
    READY = "ready"  # waits in `init`
    MEMBER = "member"
    DISMISSED = "dismissed"
    KILLED = "killed"  # and not ended yet
    ENDED = "ended"


@dataclass(frozen=True)
class Readiness:
    """What a worker says when it calls `init`.

    `generation` is the one that it was in, -1 for none. `has_state`: it holds a state that all had,
    with so many `commits`. `must_sync`: it has gone back to its last commit, or holds no state.
    `accused` are the workers that its runtime has given up.
    """

    generation: int = -1
    has_state: bool = False
    commits: int = 0
    must_sync: bool = True
    accused: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Worker:
    """One process. `since_s` is when it came to this status; `accused_s` when it was first accused,
    infinity for never; `silent_s` since when it has been seen to be unable to say anything."""

    slot: SlotName
    since_s: float
    status: Status = Status.STARTING
    said: Readiness = Readiness()
    accused_s: float = math.inf
    silent_s: float = math.inf
    is_failure: bool = False  # that it was killed is its slot's fault
    has_returned: bool = False  # from its training function
    is_struck: bool = False  # it was killed or stopped on purpose

    @property
    def lives(self) -> bool:
        return self.status not in (Status.ENDED, Status.KILLED, Status.DISMISSED)


@dataclass(frozen=True)
class Former:
    """What is taken over of a job whose launcher has ended, and with it all ranks: how many workers
    it had, its last generation (-1: none), its resets and the slots in which processes failed."""

    workers: int = 0
    generation: int = -1
    resets: int = 0
    failed: tuple[FailedSlot, ...] = ()


class Membership:
    """Decides. Thread rule: one thread."""

    def __init__(
        self, limits: ElasticLimits, former: Former | None = None, began_s: float = 0.0
    ) -> None:
        former = former or Former()
        self.limits = limits
        self.slots = Slots(limits.cooldown, former.failed)
        self.workers: dict[int, Worker] = {}
        self._first_worker = former.workers
        self.phase = JobPhase.GATHERING
        self.generation = former.generation
        self.members: tuple[int, ...] = ()
        # To be formed by another launcher is one, too.
        self.resets = former.resets + (former.generation >= 0)
        self.is_over = False
        self._since_s = began_s  # of the phase
        self._has_formed = False  # a generation, ever
        self._has_failed_to_form = False  # the last generation
        self._is_state_known = False  # somebody has trained
        self._returned: int | None = None  # the first worker that returned from its script
        self._is_notified = False  # the members of this generation
        self._lost: set[int] = set()  # those that failed since the last generation has formed
        self._failed: set[int] = set()  # those that did when they had returned from the training
        # Since when members without a slot stay, as too few others are there.
        self._kept_s = math.inf
        self._urgent: list[Action] = []

    @property
    def former(self) -> Former:
        """What another launcher would take over now."""
        number = self._first_worker + len(self.workers)
        return Former(number, self.generation, self.resets, self.slots.failed)

    @property
    def expected(self) -> list[int]:
        """The workers of the next generation in the order of their ranks, if all that have been
        started join it and nothing else happens."""
        living = [number for number, one in self.workers.items() if one.lives]
        wanted = [number for number in living if self._is_wanted(self.workers[number])]
        return self._by_host(sorted(wanted, key=lambda one: (one not in self.members, one)))

    # What has happened.

    def note_hosts(self, hosts: Mapping[str, int]) -> None:
        """Discovery has found these hosts, with their numbers of slots."""
        self.slots.update(hosts)

    def note_ready(self, worker: int, said: Readiness, now_s: float) -> None:
        """The worker has called `init`."""
        if not self.workers[worker].lives:
            return
        was_member = self.workers[worker].status is Status.MEMBER
        self._set(
            worker,
            now_s,
            status=Status.READY,
            said=said,
            accused_s=math.inf,
            silent_s=math.inf,
            has_returned=False,
        )
        self._is_state_known |= said.has_state
        if not was_member:
            return
        if self.phase is JobPhase.FORMING:
            self._abandon(f"worker {worker} could not join", now_s)
        elif self.phase is JobPhase.RUNNING:
            self._gather(now_s, failed_to_form=False)
        for accused in said.accused & set(self.members):
            accused_s = min(now_s, self.workers[accused].accused_s)
            if self.workers[accused].status is Status.MEMBER:
                self._set(accused, None, accused_s=accused_s)

    def note_unable(self, worker: int) -> None:
        """An accused worker is seen to be stopped or cut off, so it need not be waited for."""
        if self.workers[worker].accused_s < math.inf and self.phase is JobPhase.GATHERING:
            self._set(worker, None, accused_s=-math.inf)

    def note_silent(self, worker: int, now_s: float) -> None:
        """A member that is waited for is seen to be stopped, or its connection has ended."""
        silent_s = min(now_s, self.workers[worker].silent_s)
        self._set(worker, None, silent_s=silent_s)

    def note_heard(self, worker: int) -> None:
        """The member is seen to be able to say something."""
        self._set(worker, None, silent_s=math.inf)

    def note_training(self, worker: int, *, is_on: bool) -> None:
        """The worker is in a training function, or has returned from it."""
        self._set(worker, None, has_returned=not is_on)

    def note_struck(self, worker: int) -> None:
        """The worker is killed or stopped on purpose: that is no failure of the job."""
        self._set(worker, None, is_struck=True)

    @property
    def waits_for_members(self) -> bool:
        """Whether members that say nothing are waited for."""
        is_ending = self.phase is JobPhase.RUNNING and self._is_finishing
        return self.phase is JobPhase.GATHERING or is_ending

    @property
    def is_training(self) -> bool:
        """Whether the members are connected, and none has returned from its training function."""
        members = [self.workers[one] for one in self.members]
        return self.phase is JobPhase.RUNNING and not any(one.has_returned for one in members)

    @property
    def _is_finishing(self) -> bool:
        return self._returned is not None

    def note_exit(self, worker: int, code: int, now_s: float) -> None:
        """The worker's process has ended."""
        one = self.workers[worker]
        was_member = one.status is Status.MEMBER
        is_failure = one.is_failure if one.status is Status.KILLED else code != 0
        if is_failure and one.status is not Status.DISMISSED:
            self.slots.note_failure(one.slot, now_s)
            was_needed = worker in self.members or not self._has_formed
            if code != 0 and one.has_returned:
                self._failed.add(worker)
            elif code != 0 and not one.is_struck and was_needed:
                self._lost.add(worker)
        if code == 0 and one.lives:
            self._returned = worker if self._returned is None else self._returned
            self._has_formed |= was_member  # the news of it may still be on its way
        self._set(worker, now_s, status=Status.ENDED)
        if was_member and self.phase is JobPhase.FORMING:
            self._abandon(f"worker {worker} ended while the job formed", now_s)
        if self.phase is JobPhase.RUNNING and not self._living(self.members):
            # Nobody is left who could come back.
            self._is_state_known = True
            self._gather(now_s, failed_to_form=False)

    def note_formed(self, generation: int, now_s: float) -> None:
        """Every member has joined the generation."""
        if self.phase is JobPhase.FORMING and generation == self.generation:
            if self._has_formed:
                self.resets += 1
            self.phase, self._since_s = JobPhase.RUNNING, now_s
            self._has_formed, self._is_notified = True, False
            self._lost = set()

    def note_failed_to_form(self, generation: int, why: str, now_s: float) -> None:
        """The generation's members did not find each other."""
        if self.phase is JobPhase.FORMING and generation == self.generation:
            self._abandon(why, now_s)

    # What is to be done.

    def decide(self, now_s: float) -> list[Action]:
        """What follows from what has happened; asking again without news gives nothing."""
        if self.is_over:
            return []
        actions, self._urgent = self._urgent, []
        actions += self._drop_unwanted(now_s)
        actions += self._keep_unlisted(now_s)
        actions += self._start(now_s)
        if self.phase is JobPhase.RUNNING:
            actions += self._notify(now_s) + self._end_silent(now_s)
        elif self.phase is JobPhase.GATHERING:
            actions += self._form(now_s)
        return actions

    def next_deadline_s(self, now_s: float) -> float:
        """When `decide` may have something to say although nothing happens; infinity for never."""
        limits, deadlines = self.limits, [self.slots.next_return_s(now_s)]
        deadlines += [self._kept_s + limits.elastic_timeout_s]
        if self.phase is JobPhase.GATHERING:
            deadlines += [self._since_s + limits.start_timeout_s]
            deadlines += [self._since_s + limits.elastic_timeout_s, self._deadline_s()]
            deadlines += [self._patience_s(member) for member in self._missing()]
        if self.waits_for_members:
            deadlines += [self._silent_until_s(member) for member in self._missing()]
        newcomers = self._of(Status.READY)
        deadlines += [self.workers[one].since_s + limits.start_timeout_s for one in newcomers]
        return min((deadline for deadline in deadlines if deadline > now_s), default=math.inf)

    def _drop_unwanted(self, now_s: float) -> list[Action]:
        """Ends newcomers whose slot is gone."""
        actions: list[Action] = []
        for number, worker in self.workers.items():
            is_new = worker.status is Status.STARTING or (
                worker.status is Status.READY and number not in self.members
            )
            if is_new and not self._is_wanted(worker):
                self._set(number, now_s, status=Status.KILLED, is_failure=False)
                actions.append(Kill(number))
        return actions

    def _keep_unlisted(self, now_s: float) -> list[Action]:
        """Members whose slot is gone stay while too few others are there."""
        living = self._living(self.members)
        unlisted = [one for one in living if not self._is_wanted(self.workers[one])]
        newcomers = [one for one in self._of(Status.READY) if one not in self.members]
        listed = len(living) - len(unlisted) + len(newcomers)
        # Who hands over the state needs a place beside those who take it.
        cannot_hand_over = len(unlisted) == len(living) and self.limits.max_ranks == 1
        is_enough = listed >= self.limits.min_ranks and not cannot_hand_over
        if not unlisted or is_enough or self._is_finishing:
            self._kept_s = math.inf
            return []
        if self._kept_s <= now_s:
            return []
        self._kept_s = now_s
        least = counted(self.limits.min_ranks, "rank")
        return [
            Remark(
                f"{counted(len(unlisted), 'rank')} on hosts that are no longer listed will stay "
                f"until at least {least} (--min-np) are on listed hosts, for at most "
                f"{self.limits.elastic_timeout_s:g} s (--elastic-timeout)"
            )
        ]

    def _is_kept_too_long(self, now_s: float) -> bool:
        return self._kept_s + self.limits.elastic_timeout_s <= now_s

    def _start(self, now_s: float) -> list[Action]:
        if self._is_finishing:
            return []
        taken = {one.slot for one in self.workers.values() if one.status is not Status.ENDED}
        wanted = [one for one in self.workers.values() if one.lives and self._is_wanted(one)]
        free = [slot for slot in self.slots.usable(now_s) if slot not in taken]
        actions: list[Action] = []
        for slot in free[: max(0, self.limits.max_ranks - len(wanted))]:
            number = self._first_worker + len(self.workers)
            self.workers[number] = Worker(slot, now_s)
            actions.append(Start(number))
        return actions

    def _notify(self, now_s: float) -> list[Action]:
        if self._is_notified or self._is_finishing:
            return []
        if self._kept_s < math.inf and not self._is_kept_too_long(now_s):
            return []
        staying = [one for one in self._living(self.members) if self._is_wanted(self.workers[one])]
        leaving = len(self._living(self.members)) - len(staying)
        newcomers = self._of(Status.READY) if len(staying) < self.limits.max_ranks else []
        # Those who start at about the same time come in together.
        if newcomers and self._of(Status.STARTING):
            waiting_s = now_s - min(self.workers[one].since_s for one in newcomers)
            if waiting_s < self.limits.start_timeout_s:
                newcomers = []
        if not newcomers and not leaving:
            return []
        self._is_notified = True
        return [Notify(added=bool(newcomers))]

    def _form(self, now_s: float) -> list[Action]:
        missing = self._missing()
        late = [one for one in missing if self._patience_s(one) <= now_s]
        if late:
            return self._give_up(late, now_s)
        if missing or self._still_ending():
            return []
        if self._is_finishing:
            return self._finish_training(now_s)
        ready = self._in_order(self._of(Status.READY))
        if self._is_state_known and not self._any_left_with_state():
            return self._finish("no rank is left that held the state of the training")
        if self._is_kept_too_long(now_s):
            return self._dismiss_but((), now_s) + self._finish(self._too_few_listed())
        ready = self._going_on(ready)
        if len(ready) < self.limits.min_ranks:
            return self._wait_for_more(len(ready), now_s)
        is_first_wait = not self._has_formed and self._of(Status.STARTING)
        if is_first_wait and now_s < self._first_ready_s() + self.limits.start_timeout_s:
            return []
        return self._form_of(ready, now_s)

    def _end_silent(self, now_s: float) -> list[Action]:
        """Where a rank has returned from its script, the others may have no operation any more that
        would find out which of them is stopped or cut off."""
        if not self._is_finishing:
            return []
        late = [one for one in self._missing() if self._silent_until_s(one) <= now_s]
        return self._give_up(late, now_s)

    def _give_up(self, late: list[int], now_s: float) -> list[Action]:
        whys = [self._why_late(one) for one in late]
        for one in late:
            self._set(one, now_s, status=Status.KILLED, is_failure=True)
        return [Kill(one, why) for one, why in zip(late, whys, strict=True)]

    def _going_on(self, ready: list[int]) -> list[int]:
        """Who may be in the next generation, of these in their order: those whose slot is listed,
        with who has the state where they do not, and all while too few are listed."""
        listed = [one for one in ready if self._is_wanted(self.workers[one])]
        if self._kept_s < math.inf:
            return ready
        if self._is_state_known and not any(self.workers[one].said.has_state for one in listed):
            return [ready[0], *listed]
        return listed

    def _dismiss_but(self, members: tuple[int, ...], now_s: float) -> list[Action]:
        """Those whose slot is gone and who are not in the next generation leave."""
        leaving = [
            one
            for one in self._of(Status.READY)
            if one not in members and not self._is_wanted(self.workers[one])
        ]
        for one in leaving:
            self._set(one, now_s, status=Status.DISMISSED)
        return [Dismiss(one) for one in leaving]

    def _too_few_listed(self) -> str:
        limits = self.limits
        least = counted(limits.min_ranks, "rank")
        return (
            f"the listed hosts did not provide {least} (--min-np) within "
            f"{limits.elastic_timeout_s:g} s (--elastic-timeout)"
        )

    def _finish_training(self, now_s: float) -> list[Action]:
        """Members whose peers have ended before them go on by themselves, however few they are."""
        left = [one for one in self._in_order(self._of(Status.READY)) if one in self.members]
        if left:
            return self._form_of(left, now_s)
        if failed := self._failed or self._lost:
            return self._finish("the training is over, so the rank is not replaced", min(failed))
        if not self._has_formed and self._of(Status.READY):
            early = f"worker {self._returned} exited with code 0"
            return self._finish(f"{early} before all ranks had called hvd.init()")
        # A script without `init` ends on each of its workers by itself.
        never_joined = not self._has_formed and self._of(Status.STARTING)
        late = now_s >= self._since_s + self.limits.elastic_timeout_s
        return [] if never_joined and not late else self._finish("")

    def _form_of(self, ready: list[int], now_s: float) -> list[Action]:
        limit = self.limits.reset_limit
        if limit is not None and self._has_formed and self.resets >= limit:
            return self._finish(f"reached --reset-limit ({limit})")
        members = tuple(self._by_host(ready[: self.limits.max_ranks]))
        dismissed = self._dismiss_but(members, now_s)
        must_sync = any(self.workers[one].said.must_sync for one in members)
        self.generation += 1
        self.members, self.phase, self._since_s = members, JobPhase.FORMING, now_s
        for one in members:
            self._set(one, now_s, status=Status.MEMBER, accused_s=math.inf, silent_s=math.inf)
        return [*dismissed, Form(self.generation, members, must_sync)]

    def _wait_for_more(self, ready: int, now_s: float) -> list[Action]:
        limits = self.limits
        are = "is" if ready == 1 else "are"
        where = "left" if self._has_formed else "there"
        few = f"{counted(ready, 'rank')} of at least {limits.min_ranks} {are} {where}"
        can_come = self._of(Status.STARTING) or self.slots.next_return_s(now_s) < math.inf
        if limits.hosts_are_fixed and not can_come:
            return self._finish(f"{few}, and no slot is free for another rank")
        if now_s >= self._deadline_s():
            waited_s = max(now_s - self._since_s, limits.elastic_timeout_s)
            starting = self._of(Status.STARTING)
            started = counted(len(starting), "process")
            late = f": {started} that started did not call hvd.init()" if starting else ""
            return self._finish(
                f"{few}, and no other rank joined within {round(waited_s, 1):g} s{late}"
            )
        return []

    def _deadline_s(self) -> float:
        """Until when more ranks are waited for: those that were started in time, for as long as a
        process may take to start."""
        deadline_s = self._since_s + self.limits.elastic_timeout_s
        started_s = (self.workers[one].since_s for one in self._of(Status.STARTING))
        coming_s = [
            since_s + self.limits.start_timeout_s for since_s in started_s if since_s < deadline_s
        ]
        return max([deadline_s, *coming_s])

    def _finish(self, why: str, failed: int | None = None) -> list[Action]:
        self.is_over = True
        return [Finish(why, failed, tuple(self._of(Status.DISMISSED)))]

    def _abandon(self, why: str, now_s: float) -> None:
        self._urgent.append(Abandon(self.generation, why))
        self._gather(now_s, failed_to_form=True)

    def _gather(self, now_s: float, *, failed_to_form: bool) -> None:
        self.phase, self._since_s = JobPhase.GATHERING, now_s
        self._has_failed_to_form = failed_to_form

    # What is the case.

    def _missing(self) -> list[int]:
        """The members of the generation before that live and have not come back."""
        return [one for one in self.members if self.workers[one].status is Status.MEMBER]

    def _still_ending(self) -> bool:
        """Whether a member is being killed: until it is dead it might still write its files."""
        return any(self.workers[one].status is Status.KILLED for one in self.members)

    def _patience_s(self, member: int) -> float:
        """Until when a missing member is waited for. It may compute for long before it finds out
        that the others have left; one that could not join waits for nothing else."""
        limits = self.limits
        wait_s = limits.start_timeout_s if self._has_failed_to_form else limits.elastic_timeout_s
        one = self.workers[member]
        suspected_s = min(one.accused_s, one.silent_s)
        return min(self._since_s + wait_s, suspected_s + limits.heartbeat_timeout_s)

    def _silent_until_s(self, member: int) -> float:
        return self.workers[member].silent_s + self.limits.heartbeat_timeout_s

    def _why_late(self, member: int) -> str:
        """What a member has failed to do that is not waited for any longer."""
        limits, one = self.limits, self.workers[member]
        option = f"{limits.heartbeat_timeout_s:g} s (--heartbeat-timeout)"
        if one.accused_s == -math.inf or one.silent_s < one.accused_s:
            return f"has not answered for {option}"
        if one.accused_s < math.inf:
            return f"was reported lost by another rank and did not end by itself within {option}"
        wait_s = limits.start_timeout_s if self._has_failed_to_form else limits.elastic_timeout_s
        return f"has not come back to hvd.init() in {wait_s:g} s"

    def _first_ready_s(self) -> float:
        return min(self.workers[one].since_s for one in self._of(Status.READY))

    def _any_left_with_state(self) -> bool:
        return any(self.workers[one].said.has_state for one in self._of(Status.READY))

    def _is_wanted(self, worker: Worker) -> bool:
        return self.slots.exists(worker.slot)

    def _of(self, status: Status) -> list[int]:
        return [number for number, one in self.workers.items() if one.status is status]

    def _living(self, numbers: tuple[int, ...]) -> list[int]:
        return [number for number in numbers if self.workers[number].lives]

    def _in_order(self, numbers: list[int]) -> list[int]:
        """Who holds the latest state first, then the oldest: rank 0 sends its state to the rest."""

        def place(number: int) -> tuple[bool, int, int]:
            said = self.workers[number].said
            return not said.has_state, -said.commits, number

        return sorted(numbers, key=place)

    def _by_host(self, numbers: list[int]) -> list[int]:
        """The ranks of a host follow each other, and the hosts each other as their first ranks."""
        hosts = list(dict.fromkeys(self.workers[one].slot.host for one in numbers))
        return sorted(numbers, key=lambda one: hosts.index(self.workers[one].slot.host))

    def _set(self, number: int, now_s: float | None, **changes: object) -> None:
        if now_s is not None:
            changes["since_s"] = now_s
        self.workers[number] = replace(self.workers[number], **changes)  # type: ignore[arg-type]
