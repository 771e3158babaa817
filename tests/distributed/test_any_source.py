"""Receipts from any source, by the backend hvdtune."""

from datetime import timedelta

import pytest
import torch
from torch import distributed as dist

from tests.distributed import members

SIZE = 3


def gathers_by_receipts(rank, size):
    """Rank 0 hears from all others, three times each; every order of one sender's is kept."""
    if rank:
        for number in range(3):
            dist.send(torch.tensor([rank, number]), 0)
        dist.barrier()
        return None
    heard = {1: [], 2: []}
    for _ in range(3 * (size - 1)):
        came = torch.zeros(2, dtype=torch.int64)
        source = dist.recv(came)
        assert came[0] == source
        heard[source].append(int(came[1]))
    dist.barrier()
    return heard


def test_each_message_comes_once_in_its_senders_order_and_names_the_sender(tmp_path):
    assert members.run(gathers_by_receipts, SIZE, tmp_path)[0] == {1: [0, 1, 2], 2: [0, 1, 2]}


def mixed(rank, size):
    """Receipts that name their sender, of other sizes and tags, beside those that do not."""
    if rank == 0:
        # Of one element, so that its stride does not make it less contiguous.
        first, named, last = torch.empty(2)[::2], torch.empty(4), torch.empty(2, 2).t()
        source = dist.recv(first)  # rank 1 alone has sent
        works = [dist.irecv(named, 1), dist.irecv(last)]
        dist.send(torch.zeros(1), 2)
        for work in works:
            work.wait()
        objects = [None]
        dist.recv_object_list(objects, src=2)
        other = torch.empty(1, dtype=torch.int32)
        assert dist.recv(other, tag=5) == 1
        return source, first.tolist(), named.tolist(), last.sum().item(), objects, other.item()
    if rank == 1:
        dist.send(torch.ones(1), 0)
        dist.send(torch.full((4,), 7.0), 0)
        dist.send(torch.tensor([9], dtype=torch.int32), 0, tag=5)
    else:
        dist.recv(torch.empty(1), 0)
        dist.send(torch.full((2, 2), 3.0), 0)
        dist.send_object_list([{"size": size}], 0)
    return None


def test_receipts_of_both_kinds_take_what_is_theirs(tmp_path):
    found = members.run(mixed, SIZE, tmp_path)[0]
    assert found == (1, [1.0], [7.0] * 4, 12.0, [{"size": 3}], 9)


def loses_a_sender(rank, size):
    if rank == 1:
        dist.send(torch.ones(1), 0)
        members.die()
    if rank == 0:
        for _ in range(2):
            dist.recv(torch.empty(1))


def test_a_receipt_from_any_source_names_a_member_that_was_killed(tmp_path):
    receiver = members.run(loses_a_sender, SIZE, tmp_path, kills=1)[0]
    assert receiver.error.kind == "DistBackendError", receiver.trace
    assert receiver.error.rank == 1
    assert "from any rank" in str(receiver.error)


def does_not_fit(rank, size):
    if rank == 1:
        dist.send(torch.ones(3), 0)
    elif rank == 0:
        with pytest.raises(RuntimeError, match="12 bytes, the tensor for it has 4"):
            dist.recv(torch.empty(1))
        late = dist.irecv(torch.empty(1))
        with pytest.raises(dist.DistBackendError, match=r"from any rank.*Timed out after 0\.2 s"):
            late.wait(timedelta(seconds=0.2))
    dist.barrier()


def test_a_message_of_another_size_and_none_at_all_are_errors(tmp_path):
    members.run(does_not_fit, SIZE, tmp_path)
