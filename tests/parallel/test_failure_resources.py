"""Ranks that run out of descriptors or may not have the memory they ask for."""

import contextlib
import os
import resource
from dataclasses import dataclass

import pytest
import torch

import hvdtune.torch as hvd
from hvdtune.errors import HvdtuneError, RankLostError, RendezvousError
from tests.parallel.ranks import start


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


def outcomes_with(places, **config):
    with start(add_up, len(places), places=places, start_timeout_s=10.0, **config) as job:
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
