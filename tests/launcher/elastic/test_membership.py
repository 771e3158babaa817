"""Decisions about membership, event by event."""

from collections.abc import Iterator

from hvdtune.launcher.decisions import Abandon, Finish, Kill, Start
from hvdtune.launcher.elastic.membership import (
    Action,
    Dismiss,
    ElasticLimits,
    Form,
    Former,
    JobPhase,
    Membership,
    Notify,
    Readiness,
    Remark,
)
from hvdtune.launcher.elastic.slots import Cooldown, FailedSlot, SlotName, Slots

SILENT = "has not answered for 2 s (--heartbeat-timeout)"
TRAINED = Readiness(generation=0, has_state=True, commits=3, must_sync=True)


def started(limits: ElasticLimits, hosts: dict[str, int]) -> Membership:
    membership = Membership(limits)
    membership.note_hosts(hosts)
    assert all(isinstance(action, Start) for action in membership.decide(0.0))
    return membership


def running(limits: ElasticLimits, hosts: dict[str, int]) -> Membership:
    membership = started(limits, hosts)
    for worker in membership.workers:
        membership.note_ready(worker, Readiness(), 1.0)
    (form,) = membership.decide(1.0)
    assert isinstance(form, Form)
    membership.note_formed(form.generation, 2.0)
    assert membership.decide(2.0) == []
    return membership


def formed(actions: list[Action]) -> Iterator[tuple[int, ...]]:
    return (action.members for action in actions if isinstance(action, Form))


def test_the_first_generation_waits_for_all_that_were_started() -> None:
    membership = started(ElasticLimits(1, 2), {"a": 2})
    membership.note_ready(0, Readiness(), 1.0)
    assert membership.decide(1.0) == []
    membership.note_ready(1, Readiness(), 2.0)
    assert membership.decide(2.0) == [Form(0, (0, 1), True)]


def test_the_first_generation_goes_without_one_that_does_not_come() -> None:
    membership = started(ElasticLimits(1, 2, start_timeout_s=30), {"a": 2})
    membership.note_ready(0, Readiness(), 1.0)
    assert membership.next_deadline_s(1.0) <= 31.0
    assert [*formed(membership.decide(31.0))] == [(0,)]


def test_survivors_of_a_killed_rank_go_on_without_it() -> None:
    membership = running(ElasticLimits(1, 3), {"a": 3})
    membership.note_exit(1, -9, 5.0)
    assert membership.decide(5.0) == []
    membership.note_ready(2, TRAINED, 5.1)
    assert membership.decide(5.1) == []
    membership.note_ready(0, TRAINED, 5.2)
    assert membership.decide(5.2) == [Form(1, (0, 2), True)]


def test_an_accused_rank_is_ended_when_it_does_not_come() -> None:
    membership = running(ElasticLimits(1, 2, heartbeat_timeout_s=2), {"a": 2})
    accusation = Readiness(0, True, 3, True, frozenset({1}))
    membership.note_ready(0, accusation, 5.0)
    assert membership.decide(5.0) == []
    assert membership.next_deadline_s(5.0) == 7.0
    why = (
        "was reported lost by another rank and did not end by itself within 2 s "
        "(--heartbeat-timeout)"
    )
    assert membership.decide(7.0) == [Kill(1, why)]
    assert membership.decide(8.0) == []
    membership.note_exit(1, -9, 8.0)
    assert [*formed(membership.decide(8.0))] == [(0,)]


def test_an_accused_rank_that_is_stopped_is_ended_at_once() -> None:
    membership = running(ElasticLimits(1, 2), {"a": 2})
    membership.note_unable(1)
    membership.note_ready(0, Readiness(0, True, 3, True, frozenset({1})), 5.0)
    membership.note_unable(1)
    assert membership.decide(5.0) == [Kill(1, SILENT)]


def test_a_rank_that_nobody_accuses_and_that_can_say_nothing_is_ended() -> None:
    membership = running(ElasticLimits(1, 3, heartbeat_timeout_s=2), {"a": 3})
    membership.note_ready(0, Readiness(0, True, 3, True, frozenset({1})), 5.0)
    membership.note_exit(1, 1, 5.0)
    membership.note_silent(2, 5.5)
    membership.note_silent(2, 6.0)
    assert membership.next_deadline_s(6.0) == 7.5
    assert membership.decide(7.5) == [Kill(2, SILENT)]


def test_a_rank_that_was_stopped_and_goes_on_is_waited_for() -> None:
    membership = running(ElasticLimits(1, 2, heartbeat_timeout_s=2), {"a": 2})
    membership.note_ready(0, TRAINED, 5.0)
    membership.note_silent(1, 5.0)
    membership.note_heard(1)
    assert membership.decide(9.0) == []


def test_two_ranks_that_accuse_each_other_are_both_alive() -> None:
    membership = running(ElasticLimits(1, 2), {"a": 2})
    membership.note_ready(0, Readiness(0, True, 3, True, frozenset({1})), 5.0)
    membership.note_ready(1, Readiness(0, True, 3, True, frozenset({0})), 5.5)
    assert [*formed(membership.decide(5.5))] == [(0, 1)]


def test_rank_0_is_who_has_committed_most() -> None:
    membership = running(ElasticLimits(1, 2), {"a": 2})
    membership.note_ready(0, Readiness(0, True, 3), 5.0)
    membership.note_ready(1, Readiness(0, True, 4), 5.5)
    assert [*formed(membership.decide(5.5))] == [(1, 0)]


def test_the_ranks_of_a_host_follow_each_other() -> None:
    membership = running(ElasticLimits(1, 4), {"a": 2, "b": 2})
    for worker, commits in ((0, 3), (1, 4), (2, 4), (3, 4)):
        membership.note_ready(worker, Readiness(0, True, commits), 5.0)
    assert [*formed(membership.decide(5.0))] == [(1, 0, 2, 3)]


def test_a_newcomer_is_announced_when_it_is_ready() -> None:
    membership = running(ElasticLimits(1, 3), {"a": 2})
    membership.note_hosts({"a": 2, "b": 1})
    assert membership.decide(3.0) == [Start(2)]
    assert membership.workers[2].slot == SlotName("b", 0)
    membership.note_ready(2, Readiness(), 9.0)
    assert membership.decide(9.0) == [Notify(added=True)]
    assert membership.decide(9.1) == []
    for worker in (0, 1):
        membership.note_ready(worker, Readiness(0, True, 4, must_sync=False), 10.0)
    assert membership.decide(10.0) == [Form(1, (0, 1, 2), True)]


def test_nobody_sends_a_state_after_a_mere_removal() -> None:
    membership = running(ElasticLimits(1, 3), {"a": 1, "b": 1})
    membership.note_hosts({"a": 1})
    assert membership.decide(3.0) == [Notify(added=False)]
    for worker in (0, 1):
        membership.note_ready(worker, Readiness(0, True, 4, must_sync=False), 10.0)
    assert membership.decide(10.0) == [Dismiss(1), Form(1, (0,), False)]


def test_ranks_stay_while_discovery_lists_nothing_and_end_after_the_timeout() -> None:
    membership = running(ElasticLimits(1, 2, elastic_timeout_s=60), {"a": 2})
    membership.note_hosts({})
    (remark,) = membership.decide(3.0)
    assert isinstance(remark, Remark) and "2 ranks on hosts that are no longer" in remark.sentence
    assert membership.decide(62.9) == [] and membership.next_deadline_s(62.9) == 63.0
    membership.note_hosts({"a": 2})
    assert membership.decide(63.0) == []
    membership.note_hosts({})
    membership.decide(70.0)
    assert membership.decide(130.0) == [Notify(added=False)]
    for worker in (0, 1):
        membership.note_ready(worker, Readiness(0, True, 4, must_sync=False), 131.0)
    *dismissed, finish = membership.decide(131.0)
    assert dismissed == [Dismiss(0), Dismiss(1)]
    assert isinstance(finish, Finish) and "did not provide 1 rank (--min-np)" in finish.why


def test_a_rank_whose_host_is_gone_hands_the_state_over_to_those_of_new_hosts() -> None:
    membership = running(ElasticLimits(1, 2), {"a": 2})
    membership.note_hosts({"b": 2})
    _, *starts = membership.decide(3.0)
    assert starts == [Start(2), Start(3)]
    assert membership.workers[2].slot == SlotName("b", 0)
    assert membership.workers[3].slot == SlotName("b", 1)
    membership.note_ready(2, Readiness(), 4.0)
    membership.note_ready(3, Readiness(), 4.0)
    assert membership.decide(4.0) == [Notify(added=True)]
    for worker in (0, 1):
        membership.note_ready(worker, Readiness(0, True, 4, must_sync=False), 5.0)
    assert membership.decide(5.0) == [Dismiss(1), Form(1, (0, 2), True)]
    membership.note_formed(1, 6.0)
    assert membership.decide(6.0) == [Notify(added=True)]
    for worker in (0, 2):
        membership.note_ready(worker, Readiness(1, True, 5, must_sync=False), 7.0)
    assert membership.decide(7.0) == [Dismiss(0), Form(2, (2, 3), True)]


def test_a_newcomer_too_few_to_replace_ranks_does_not_interrupt_them() -> None:
    membership = running(ElasticLimits(2, 2), {"a": 2})
    membership.note_hosts({"b": 1})
    membership.decide(3.0)
    membership.note_ready(2, Readiness(), 4.0)
    assert membership.decide(4.0) == []
    membership.note_exit(1, -9, 5.0)
    membership.note_ready(0, TRAINED, 5.0)
    assert [*formed(membership.decide(5.0))] == [(0, 2)]


def test_too_few_ranks_wait_for_the_timeout() -> None:
    membership = running(ElasticLimits(2, 2, elastic_timeout_s=60), {"a": 2})
    membership.note_exit(1, 1, 5.0)
    membership.note_ready(0, TRAINED, 5.0)
    assert membership.decide(5.0) == []
    assert membership.next_deadline_s(40.0) == 65.0
    (finish,) = membership.decide(65.0)
    assert isinstance(finish, Finish) and "1 rank of at least 2" in finish.why


def test_processes_that_were_started_are_waited_for_beyond_the_timeout() -> None:
    membership = started(ElasticLimits(1, 2, elastic_timeout_s=5, start_timeout_s=30), {"a": 2})
    assert membership.decide(5.0) == [] and membership.next_deadline_s(5.0) == 30.0
    (finish,) = membership.decide(30.0)
    assert isinstance(finish, Finish)
    assert finish.why.endswith("in 30 s: 2 processes that started did not call hvd.init()")


def test_too_few_ranks_do_not_wait_where_none_can_come() -> None:
    membership = running(ElasticLimits(2, 2, hosts_are_fixed=True), {"a": 2})
    membership.note_exit(1, 1, 5.0)
    membership.note_ready(0, TRAINED, 5.0)
    (finish,) = membership.decide(5.0)
    assert isinstance(finish, Finish) and "no slot" in finish.why


def test_a_slot_returns_after_its_cooldown() -> None:
    membership = running(ElasticLimits(1, 2, cooldown=Cooldown(10, 30)), {"a": 2})
    membership.note_exit(1, 1, 5.0)
    assert membership.decide(14.0) == []
    assert membership.next_deadline_s(14.0) == 15.0
    assert membership.decide(15.0) == [Start(2)]
    assert membership.workers[2].slot == SlotName("a", 1)


def test_the_reset_limit_ends_the_job() -> None:
    membership = running(ElasticLimits(1, 3, reset_limit=1), {"a": 3})
    membership.note_exit(2, -9, 5.0)
    for worker in (0, 1):
        membership.note_ready(worker, TRAINED, 6.0)
    assert [*formed(membership.decide(6.0))] == [(0, 1)]
    membership.note_formed(1, 6.5)
    membership.note_exit(1, -9, 7.0)
    membership.note_ready(0, TRAINED, 8.0)
    (finish,) = membership.decide(8.0)
    assert isinstance(finish, Finish) and "--reset-limit (1)" in finish.why


def test_a_generation_that_cannot_form_is_abandoned_and_another_one_formed() -> None:
    membership = running(ElasticLimits(1, 3), {"a": 3})
    membership.note_exit(2, -9, 5.0)
    for worker in (0, 1):
        membership.note_ready(worker, TRAINED, 6.0)
    membership.decide(6.0)
    membership.note_exit(1, -9, 6.1)
    (abandon,) = membership.decide(6.1)
    assert isinstance(abandon, Abandon) and abandon.generation == 1
    membership.note_ready(0, TRAINED, 6.2)
    assert [*formed(membership.decide(6.2))] == [(0,)]


def test_the_job_is_over_when_a_rank_has_returned_and_no_other_goes_on() -> None:
    membership = running(ElasticLimits(2, 2), {"a": 2})
    membership.note_exit(0, 0, 5.0)
    assert membership.decide(5.0) == []
    membership.note_ready(1, TRAINED, 5.1)
    assert [*formed(membership.decide(5.1))] == [(1,)]
    membership.note_formed(1, 5.2)
    membership.note_exit(1, 0, 6.0)
    assert membership.decide(6.0) == [Finish("")]


def test_the_job_fails_if_a_worker_returns_before_others_have_called_init() -> None:
    membership = started(ElasticLimits(1, 2), {"a": 2})
    membership.note_exit(1, 0, 1.0)
    assert membership.decide(1.0) == []
    membership.note_ready(0, Readiness(), 2.0)
    (finish,) = membership.decide(2.0)
    assert finish == Finish("worker 1 exited with code 0 before all ranks had called hvd.init()")


def test_a_script_without_init_ends_well() -> None:
    membership = started(ElasticLimits(1, 2), {"a": 2})
    membership.note_exit(1, 0, 1.0)
    membership.note_exit(0, 0, 2.0)
    assert membership.decide(2.0) == [Finish("")]


def test_the_job_fails_with_a_rank_that_has_returned_from_the_training_and_fails() -> None:
    membership = running(ElasticLimits(1, 3), {"a": 3})
    membership.note_training(2, is_on=False)
    membership.note_exit(2, 1, 4.0)
    for worker in (0, 1):
        membership.note_ready(worker, TRAINED, 4.1)
    assert [*formed(membership.decide(4.1))] == [(0, 1)]
    membership.note_formed(1, 4.2)
    for worker in (0, 1):
        membership.note_exit(worker, 0, 5.0)
    (finish,) = membership.decide(5.0)
    assert (
        isinstance(finish, Finish) and finish.failed == 2 and "the training is over" in finish.why
    )


def test_the_job_fails_with_a_member_for_whom_no_other_has_gone_on() -> None:
    membership = running(ElasticLimits(1, 3), {"a": 3})
    membership.note_exit(2, -9, 4.0)
    membership.note_struck(1)
    membership.note_exit(1, -9, 4.5)
    membership.note_exit(0, 0, 5.0)
    (finish,) = membership.decide(5.0)
    assert isinstance(finish, Finish) and finish.failed == 2


def test_a_rank_that_is_lost_in_another_training_function_is_made_up_for() -> None:
    membership = running(ElasticLimits(1, 2), {"a": 2})
    membership.note_training(1, is_on=False)
    assert not membership.is_training
    membership.note_training(1, is_on=True)
    assert membership.is_training
    membership.note_exit(1, -9, 4.0)
    membership.note_ready(0, TRAINED, 4.1)
    membership.decide(4.1)
    membership.note_formed(1, 4.2)
    membership.note_exit(0, 0, 5.0)
    assert membership.decide(5.0) == [Finish("")]


def test_newcomers_do_not_begin_anew_when_all_with_the_state_are_lost() -> None:
    membership = running(ElasticLimits(1, 2), {"a": 1})
    membership.note_hosts({"a": 1, "b": 1})
    membership.decide(3.0)
    membership.note_ready(1, Readiness(), 4.0)
    membership.decide(4.0)
    membership.note_exit(0, -9, 5.0)
    (finish,) = membership.decide(5.0)
    assert isinstance(finish, Finish) and "held the state" in finish.why
    assert membership.phase is JobPhase.GATHERING


def test_the_cooldown_doubles_up_to_its_most() -> None:
    assert [Cooldown(10, 35).after(n) for n in (1, 2, 3)] == [10, 20, 35]


def test_without_a_cooldown_a_slot_returns_with_its_host_only() -> None:
    slots = Slots(None)
    slots.update({"a": 2})
    slots.note_failure(SlotName("a", 0), 1.0)
    slots.update({"a": 2})
    assert slots.usable(1e9) == [SlotName("a", 1)]
    slots.update({})
    slots.update({"a": 2})
    assert slots.usable(2.0) == slots.all()


def test_with_a_cooldown_a_host_that_comes_and_goes_waits_as_before() -> None:
    slots = Slots(Cooldown(10, 100))
    slots.update({"a": 1})
    slots.note_failure(SlotName("a", 0), 1.0)
    slots.update({})
    slots.update({"a": 1})
    assert slots.usable(10.9) == []
    assert slots.usable(11.0) == slots.all()


def test_a_job_that_is_taken_over_goes_on_counting_from_what_was_known() -> None:
    failed = (FailedSlot(SlotName("a", 1), 1, None),)
    limits = ElasticLimits(1, 2, reset_limit=2, elastic_timeout_s=60)
    membership = Membership(limits, Former(3, 1, 1, failed), began_s=1000.0)
    assert membership.former == Former(3, 1, 2, failed)  # to be taken over is a reset
    membership.note_hosts({"a": 2})
    assert membership.decide(1000.0) == [Start(3)]
    assert membership.workers[3].slot == SlotName("a", 0)
    membership.note_ready(3, Readiness(), 1001.0)
    assert membership.decide(1001.0) == [Form(2, (3,), True)]
    membership.note_formed(2, 1002.0)
    membership.note_ready(3, TRAINED, 1003.0)
    (finish,) = membership.decide(1003.0)
    assert isinstance(finish, Finish) and "--reset-limit (2)" in finish.why


def test_a_failed_slot_that_is_taken_over_comes_back_with_its_host_or_its_cooldown() -> None:
    slot = SlotName("a", 0)
    slots = Slots(None, [FailedSlot(slot, 1, None)])
    slots.update({"a": 1})
    assert slots.usable(9.0) == []
    slots.update({})
    slots.update({"a": 1})
    assert slots.usable(9.0) == [slot]
    slots = Slots(Cooldown(10, 100), [FailedSlot(slot, 2, 50.0)])
    slots.update({"a": 1})
    assert slots.usable(49.0) == [] and slots.usable(50.0) == [slot]
    slots.note_failure(slot, 60.0)
    assert slots.failed == (FailedSlot(slot, 3, 100.0),)


def test_a_rank_that_stops_when_others_have_returned_is_ended() -> None:
    membership = running(ElasticLimits(1, 2), {"a": 2})
    assert not membership.waits_for_members
    membership.note_exit(0, 0, 5.0)
    assert membership.waits_for_members and membership.decide(5.0) == []
    membership.note_silent(1, 6.0)
    assert membership.next_deadline_s(6.0) == 8.0 and membership.decide(7.0) == []
    assert membership.decide(8.0) == [Kill(1, SILENT)]
