"""Operations between two ranks of torch.distributed, by the backend hvdtune."""

import os
import re
import threading
from datetime import timedelta
from functools import partial

import pytest
import torch
from torch import distributed as dist

from hvdtune.core.rank import process
from hvdtune.distributed import flight, point_to_point
from tests.distributed import members

SIZE = 3


def tells_of_a_first_receipt(rank, size):
    """The core knows nothing of it until the other rank has come."""
    store = dist.distributed_c10d._get_default_store()
    if rank == 0:
        store.wait(["told"])
        dist.send(torch.ones(1), 1)
        return None
    if rank == 2:
        return None
    told = []
    flight.hang_warning_s = lambda: 1e-3
    flight.warn = lambda text: (told.append(text), store.set("told", ""))
    dist.recv(torch.empty(1), 0, tag=0)
    return told[0]


def test_a_receipt_whose_sender_does_not_come_is_told(tmp_path):
    _, told, _ = members.run(tells_of_a_first_receipt, SIZE, tmp_path)
    assert re.fullmatch(
        r"recv 0 from rank 0, tag 0, of process group \S+ has waited for [\d.]+ s: rank 0 has "
        "neither sent to nor received from this rank yet",
        told,
    )


def differs_in_a_smaller_group(rank, size):
    group = dist.new_group([1, 2])
    if rank:
        with pytest.raises(dist.DistBackendError) as caught:
            dist.all_reduce(torch.ones(rank), group=group)
        return str(caught.value)
    return None


def test_whose_ranks_a_group_speaks_of_is_said(tmp_path):
    _, *said = members.run(differs_in_a_smaller_group, SIZE, tmp_path)
    names = "whose ranks 0 to 1 are ranks 1, 2 of the job"
    assert all(text.endswith(f"This happened in a process group {names}") for text in said)


def ends_its_completer(rank, size):
    dist.all_reduce(torch.ones(1), async_op=True).get_future().wait()
    flight.COMPLETER.close()
    dist.all_reduce(torch.ones(1))  # which needs none
    return [thread.name for thread in threading.enumerate()]


def test_no_thread_runs_callbacks_when_the_interpreter_ends(tmp_path):
    for names in members.run(ends_its_completer, 2, tmp_path):
        assert "hvdtune-completer" not in names


def hears_late_of_a_flight_that_had_the_same_id(rank, size):
    if rank == 0:
        work = dist.all_reduce(torch.ones(1), async_op=True)
        future = work.get_future()
        flight.COMPLETER._complete(id(work._flight))
        dist.send(torch.ones(1), 1)
        return future.wait()[0].item()
    dist.recv(torch.ones(1), 0)  # until then rank 0's operation cannot end
    dist.all_reduce(torch.ones(1))
    return size


def test_the_completer_keeps_a_flight_until_it_has_ended(tmp_path):
    told = members.run(hears_late_of_a_flight_that_had_the_same_id, 2, tmp_path)
    assert told == [2, 2]


def sends_and_receipts(rank, size):
    right, left = (rank + 1) % size, (rank - 1) % size
    # Around a ring: no rank waits for another before it has started both.
    given, taken = torch.full((3,), float(rank)), torch.empty(3)
    works = dist.batch_isend_irecv(
        [dist.P2POp(dist.isend, given, right), dist.P2POp(dist.irecv, taken, left)]
    )
    for work in works:
        work.wait()
    assert taken.tolist() == [left] * 3
    if rank == 0:
        sent = [(number, 0) for number in range(5)] + [(70, 7), (80, 8)]
        works = [dist.isend(torch.tensor([number]), 1, tag=tag) for number, tag in sent]
        for work in works:
            work.wait()
    if rank == 1:
        tensor = torch.empty(1, dtype=torch.int64)
        dist.recv(tensor, 0, tag=8)  # before what was sent before it
        assert tensor.item() == 80
        order = []
        for _ in range(5):
            assert dist.recv(tensor, 0) == 0
            order.append(tensor.item())
        assert order == [0, 1, 2, 3, 4]
        dist.recv(tensor, 0, tag=7)
        assert tensor.item() == 70
    both = dist.new_group([1, 2])
    strided = torch.zeros(4, 2).t()
    if rank == 1:
        dist.send(torch.ones(2, 4, dtype=torch.float32), 2, group=both)
    if rank == 2:
        dist.recv(strided, 1, group=both)
        assert strided.sum() == 8
    dist.send_object_list(["text", {"a": 1}], 1) if rank == 2 else None
    if rank == 1:
        objects = [None, None]
        dist.recv_object_list(objects, 2)
        assert objects == ["text", {"a": 1}]
    dist.barrier()


def test_what_is_sent_arrives_in_order_and_by_tag(tmp_path):
    members.run(sends_and_receipts, SIZE, tmp_path)


def waits_for_the_dead(rank, size):
    tensor = torch.ones(1)
    if rank == 2:
        dist.send(tensor, 1)
        members.die()
    if rank == 1:
        dist.recv(tensor, 2)
        dist.recv(tensor, 2)


def test_a_killed_sender_is_named(tmp_path):
    receiver = members.run(waits_for_the_dead, SIZE, tmp_path, kills=2)[1]
    assert receiver.error.kind == "DistBackendError", receiver.trace
    assert receiver.error.rank == 2
    assert "recv 1 from rank 2" in str(receiver.error)


def meets_one_that_dies_then(rank, size, peer):
    os.environ["HVDTUNE_START_TIMEOUT_S"] = "3600"
    if rank == 1:
        # Each of the two knows that the other one has come, and has yet to reach it.
        process.start_beside = lambda config: members.die()
        dist.send(torch.ones(1), peer)
    elif rank == peer:
        dist.recv(torch.ones(1), 1)


@pytest.mark.parametrize("peer", [0, 2], ids=["that-listens", "that-dials"])
def test_a_rank_that_is_killed_while_two_meet_is_named(peer, tmp_path):
    body = partial(meets_one_that_dies_then, peer=peer)
    receiver = members.run(body, SIZE, tmp_path, kills=1)[peer]
    assert receiver.error.kind == "DistBackendError", receiver.trace
    assert receiver.error.rank == 1


def waits_for_one_that_has_left(rank, size):
    if rank == 2:
        dist.destroy_process_group()
    elif rank == 1:  # who has never met the other one
        dist.recv(torch.ones(1), 2)


def test_a_sender_that_has_left_the_group_is_named(tmp_path):
    receiver = members.run(waits_for_one_that_has_left, SIZE, tmp_path, kills=2)[1]
    assert receiver.error.kind == "DistBackendError", receiver.trace
    assert receiver.error.rank == 2
    assert str(receiver.error).endswith("rank 2 has left the group, and neither sends nor receives")


def sends_to_itself(rank, size):
    """An all-to-all made of messages, with the rank's own part; sizes, tags and orders."""
    taken = [torch.zeros(2) for _ in range(size)]
    given = torch.full((2,), float(rank))
    parts = [dist.P2POp(dist.isend, given, peer) for peer in range(size)]
    parts += [dist.P2POp(dist.irecv, taken[peer], peer) for peer in range(size)]
    for work in dist.batch_isend_irecv(parts):
        work.wait()
    assert [each.tolist() for each in taken] == [[float(peer)] * 2 for peer in range(size)]
    # Several in flight come in order, each tag by itself, and the sender may change what it sent.
    message = torch.zeros(3, dtype=torch.int16)
    for number in range(4):
        message.fill_(number)
        dist.isend(message, rank, tag=number % 2).wait()
        message.fill_(99)
    strided, found = torch.zeros(3, 2, dtype=torch.int16)[:, 0], []
    for tag in (1, 0, 0, 1):
        work = dist.irecv(strided, rank, tag=tag)
        work.wait()
        assert work._source_rank() == rank
        found.append(strided.tolist())
    assert found == [[number] * 3 for number in (1, 0, 2, 3)]
    # A receipt from any source takes such a message, too, also one that was sent before it.
    dist.isend(torch.ones(()), rank, tag=5)
    any_source = torch.zeros(())
    work = dist.irecv(any_source, tag=5)
    work.wait()
    assert work._source_rank() == rank and any_source.item() == 1.0
    dist.isend(torch.ones(2), rank, tag=6)
    with pytest.raises(dist.DistBackendError, match="has 8 bytes, the tensor for it has 4"):
        dist.irecv(torch.zeros(1), rank, tag=6).wait()
    dist.isend(torch.ones(1), rank, tag=8)
    with pytest.raises(dist.DistBackendError, match=r"dtype torch\.float32, .* torch\.int32"):
        dist.irecv(torch.zeros(1, dtype=torch.int32), rank, tag=8).wait()
    with pytest.raises(dist.DistBackendError, match=r"recv from rank \d, tag 7.* after 0\.1 s"):
        dist.irecv(torch.zeros(1), rank, tag=7).wait(timedelta(seconds=0.1))
    dist.barrier()


@pytest.mark.parametrize("size", [1, 2])
def test_a_message_to_oneself_is_delivered(size, tmp_path):
    members.run(sends_to_itself, size, tmp_path)


def leaves_messages_to_itself(rank, size):
    told = []
    point_to_point.warn = told.append
    dist.isend(torch.ones(1), rank, tag=3)
    dist.isend(torch.ones(1), rank, tag=3)
    dist.irecv(torch.ones(1), rank, tag=3).wait()
    dist.destroy_process_group()
    return told


def test_a_message_to_oneself_without_a_receipt_is_warned_of(tmp_path):
    assert members.run(leaves_messages_to_itself, 1, tmp_path) == [
        [
            "rank 0 has sent itself 1 message with tag 3 without a receiver: call "
            "recv(tensor, src=0, tag=3) for each"
        ]
    ]
