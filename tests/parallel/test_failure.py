import contextlib
import os
import random
import signal
import time

import pytest
import torch

import hvdtune.torch as hvd
from hvdtune.errors import RankLostError, RendezvousError, ShutdownError
from tests.parallel.ranks import start

KILLS = int(os.environ.get("HVDTUNE_TEST_KILLS", "12"))


def reduce_for_ever():
    tensor = torch.ones(300_000)
    count = 0
    while True:
        hvd.allreduce_(tensor, op=hvd.Max, name=f"t{count % 7}")
        count += 1


def check_survivors(outcomes, victim):
    for outcome in outcomes:
        if outcome.rank == victim:
            continue
        assert f"rank {victim}" in str(outcome.error), outcome.trace
        if isinstance(outcome.error, RendezvousError):
            continue  # killed before the job was formed: there is no tensor yet
        assert isinstance(outcome.error, RankLostError), outcome.trace
        assert outcome.error.rank == victim, outcome.trace
        assert outcome.error.tensor.startswith("allreduce.t"), outcome.trace


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(KILLS))
def test_after_sigkill_every_survivor_names_the_rank_and_the_tensor(seed):
    generator = random.Random(seed)
    victim = generator.randrange(3)
    hosts = ["127.0.0.1", "127.0.0.1", "127.0.0.2"] if seed % 2 else None
    with start(reduce_for_ever, 3, hosts=hosts) as job:
        time.sleep(generator.random() * 1.2)
        os.kill(job.pid(victim), signal.SIGKILL)
        check_survivors(job.outcomes(), victim)


def test_a_stopped_rank_is_lost_after_the_heartbeat_timeout():
    with start(reduce_for_ever, 3, heartbeat_s=1.0) as job:
        while (job.server.next_event(30.0) or {})["type"] != "formed":
            pass
        time.sleep(0.3)
        os.kill(job.pid(1), signal.SIGSTOP)
        try:
            outcomes = []
            for rank in (0, 2):
                assert job.results[rank].poll(30.0)
                outcomes.append(job.outcome(rank))
        finally:
            # It is gone where it had stopped in the middle of writing into another rank's memory.
            with contextlib.suppress(ProcessLookupError):
                os.kill(job.pid(1), signal.SIGCONT)
        check_survivors(outcomes, victim=1)
        assert "stopped" in str(outcomes[0].error)


def leave_early():
    if hvd.rank() == 1:
        return "left"
    while True:
        hvd.allreduce(torch.ones(1), name="waits")


def test_a_rank_that_exits_is_named_to_those_who_wait():
    with start(leave_early, 3) as job:
        outcomes = job.outcomes()
    assert outcomes[1].value == "left"
    for rank in (0, 2):
        error = outcomes[rank].error
        assert isinstance(error, RankLostError), outcomes[rank].trace
        assert error.rank == 1
        assert error.tensor == "allreduce.waits"


def busy():
    hvd.barrier()
    if hvd.rank() == 1:
        deadline = time.monotonic() + 2.5
        while time.monotonic() < deadline:
            sum(range(1000))
    return hvd.allreduce(torch.ones(1), op=hvd.Sum).item()


def after_shutdown():
    hvd.shutdown()
    with pytest.raises(ValueError, match="has not been initialized"):
        hvd.rank()
    return "refused"


def add_up():
    return hvd.allreduce(torch.ones(1), op=hvd.Sum).item()


TIMES = ("start_s", "heartbeat_s", "hang_warning_s", "hang_abort_s")


@pytest.mark.parametrize(
    ("body", "config", "value"),
    [
        pytest.param(add_up, dict.fromkeys(TIMES, 1e10), 2.0, id="times-may-be-centuries"),
        pytest.param(busy, {"heartbeat_s": 1.0}, 2.0, id="a-busy-rank-is-not-a-dead-one"),
        pytest.param(after_shutdown, {}, "refused", id="functions-refuse-to-work-after-shutdown"),
    ],
)
def test_both_ranks_go_on(body, config, value):
    with start(body, 2, **config) as job:
        assert [outcome.value for outcome in job.outcomes()] == [value, value]


def pending_at_shutdown(folder):
    has_failed = folder / "has failed"
    if hvd.rank() == 0:
        handle = hvd.allreduce_async(torch.ones(1), name="never")
        hvd.shutdown()
        with pytest.raises((ShutdownError, RankLostError)):
            hvd.synchronize(handle)
        has_failed.touch()
    while not has_failed.exists():
        time.sleep(0.01)
    return hvd.is_initialized()


def test_what_is_pending_at_shutdown_fails_instead_of_hanging(tmp_path):
    with start(pending_at_shutdown, 2, tmp_path) as job:
        assert [outcome.value for outcome in job.outcomes()] == [False, True]
