"""Ranks that run out of descriptors, of the memory they ask for, or of room in a message."""

import contextlib
import ctypes
import os
import platform
import resource
import struct
from dataclasses import dataclass

import pytest
import torch

import hvdtune.torch as hvd
from hvdtune.core.gradients.request_batcher import RequestBatcher
from hvdtune.core.rank import runtime
from hvdtune.core.rank.collectives import ReduceOp, Reduction, allreduce_request
from hvdtune.errors import CollectiveError, HvdtuneError, RankLostError, RendezvousError
from tests.parallel.ranks import run, start


@dataclass
class Cramped:
    """A place for a rank in which it may open so many more descriptors, or write so many bytes."""

    descriptors: int | None = None
    file_bytes: int | None = None
    name: str = "localhost"
    address: str = "127.0.0.1"

    def enter(self):
        if self.descriptors is not None:
            taken = {int(fd) for fd in os.listdir("/proc/self/fd")}
            free = [fd for fd in range(4096) if fd not in taken]
            hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
            resource.setrlimit(resource.RLIMIT_NOFILE, (free[self.descriptors], hard))
        if self.file_bytes is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (self.file_bytes, self.file_bytes))

    def entered(self):
        return contextlib.nullcontext()


def add_up():
    return hvd.allreduce(torch.ones(3), op=hvd.Sum).sum().item()


class Confined(Cramped):
    """A place whose ranks may not touch each other's private memory, as in some containers."""

    _NUMBERS = {"x86_64": (310, 311), "aarch64": (270, 271)}.get(platform.machine(), ())

    def enter(self):
        read, write = self._NUMBERS
        code = [
            (0x20, 0, 0, 0),  # the number of the system call
            (0x15, 1, 0, read),
            (0x15, 0, 1, write),
            (0x06, 0, 0, 0x00050001),  # EPERM
            (0x06, 0, 0, 0x7FFF0000),  # go on
        ]
        program = b"".join(struct.pack("HBBI", *one) for one in code)
        buffer = ctypes.create_string_buffer(program)
        filters = struct.pack("HxxxxxxP", len(code), ctypes.addressof(buffer))
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS
        assert libc.prctl(22, 2, filters, 0, 0) == 0  # PR_SET_SECCOMP, SECCOMP_MODE_FILTER


def run_out_of_descriptors():
    shared = torch.frombuffer(runtime.shared_buffer(4_000_000), dtype=torch.float32).fill_(1)
    if hvd.rank() == 0:
        Cramped(descriptors=0).enter()
        with contextlib.suppress(OSError):
            while True:
                os.dup(0)
    hvd.allreduce_(shared, name="gradient")


@pytest.mark.skipif(not Confined._NUMBERS, reason="not the numbers of this machine's system calls")
def test_a_rank_that_cannot_map_the_others_memory_is_the_one_at_fault():
    with start(run_out_of_descriptors, 2, places=[Confined(), Confined()]) as job:
        own, other = job.outcomes()
    assert type(own.error) is CollectiveError, own.trace
    assert type(other.error) is RankLostError, other.trace
    assert own.error.rank == other.error.rank == 0
    assert str(own.error) == str(other.error)
    assert "rank 0 failed: cannot open the shared memory of rank 1" in str(own.error)
    assert "Too many open files" in str(own.error) and "ulimit -n" in str(own.error)


def outcomes_with(places, **config):
    with start(add_up, len(places), places=places, start_s=10.0, **config) as job:
        return job.outcomes()


@pytest.mark.parametrize("cramped", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_rank_without_descriptors_says_so_and_is_named_by_the_others(cramped):
    said = set()
    for spare in range(30):
        places = [Cramped(), Cramped()]
        places[cramped].descriptors = spare
        outcomes = outcomes_with(places)
        error = outcomes[cramped].error
        if error is None:
            assert [outcome.value for outcome in outcomes] == [6.0, 6.0]
            break
        assert isinstance(error, HvdtuneError), outcomes[cramped].trace
        said.add(str(error))
        assert "Too many open files" in str(error)
        assert "ulimit -n" in str(error)
        other = outcomes[1 - cramped].error
        assert isinstance(other, RendezvousError | RankLostError), outcomes[1 - cramped].trace
        assert f"rank {cramped}" in str(other)
    else:
        pytest.fail("30 descriptors are not enough")
    assert len(said) >= 3  # at several places


def test_memory_that_may_not_be_made_is_a_clear_error_with_a_way_out():
    places = [Cramped(file_bytes=4096), Cramped()]
    for outcome in outcomes_with(places):
        assert isinstance(outcome.error, RendezvousError), outcome.trace
        assert "MiB of shared memory: ftruncate: File too large" in str(outcome.error)
        assert "HVDTUNE_TRANSPORT=tcp" in str(outcome.error)
    outcomes = outcomes_with([Cramped(file_bytes=4096), Cramped()], transport="tcp")
    assert [outcome.value for outcome in outcomes] == [6.0, 6.0]


def announce_more_than_a_frame_holds():
    count = 17_000  # of 4 KB names: 68 MB, where a frame holds 64 MiB
    values = torch.arange(count, dtype=torch.float32)
    batch = RequestBatcher(flush_bytes=1 << 40)
    for number in range(count):
        name = f"{number:05d}".rjust(4_000, "n")
        request = allreduce_request(name, [("float32", (1,))], Reduction(ReduceOp.SUM))
        batch.add(request, [values[number:].data_ptr()], 4, (values,))
    batch.wait()
    return torch.equal(values, 2 * torch.arange(count, dtype=torch.float32))


@pytest.mark.slow
def test_more_names_than_a_frame_holds_are_announced_at_once():
    assert run(announce_more_than_a_frame_holds, 2) == [True, True]
