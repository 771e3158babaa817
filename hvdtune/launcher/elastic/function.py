"""A function on the ranks of an elastic job: see `hvdtune.launcher.function.run`."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hvdtune.core.config.environment import launcher_values, worker_environ
from hvdtune.errors import ArgumentError, UsageError
from hvdtune.launcher.call import FunctionCall, interruptible, result_file, settle, write_here
from hvdtune.launcher.elastic.discovery import Discovery, DiscoveryScript, FixedHosts
from hvdtune.launcher.elastic.membership import ElasticLimits
from hvdtune.launcher.elastic.slots import Cooldown
from hvdtune.launcher.elastic.workers import ElasticWorkers
from hvdtune.launcher.hosts import Host, checked_ssh_args, remote_hosts, this_host
from hvdtune.launcher.job import Job
from hvdtune.launcher.output import Writer
from hvdtune.launcher.plan import Slot, plan_slots
from hvdtune.launcher.rank_files import worker_files
from hvdtune.launcher.ranks import JobOptions, JobPlan
from hvdtune.launcher.spawn import sealed_file

_NAMES: Final = {"ranks": "num_proc", "host_discovery_script": "host_discovery_script"}
_ELASTIC_TIMEOUT_S: Final = 600.0


@dataclass(frozen=True)
class CallLimits:
    """How many ranks a function has, and on which discovered hosts.

    Attributes:
        least: the minimum number of ranks of an elastic job.
        slots: of a discovered host without a number.
        script: prints the hosts of an elastic job.
    """

    ranks: int
    least: int | None
    most: int | None
    slots: int
    reset_limit: int | None
    cooldown: Sequence[int] | None
    script: str | None

    @property
    def is_elastic(self) -> bool:
        return self.least is not None or self.script is not None

    def require_fixed(self) -> None:
        """Raises UsageError for an argument that only an elastic job has."""
        given = {
            "max_num_proc": self.most,
            "reset_limit": self.reset_limit,
            "cooldown_range": self.cooldown,
        }
        for name, value in given.items():
            if value is not None:
                raise UsageError(
                    f"hvdtune.run: {name}={value} needs min_num_proc= or host_discovery_script="
                )

    def minimum(self) -> int:
        return self.ranks if self.least is None else self.least

    def maximum(self, room: int | None) -> int:
        """Args: room: the slots of fixed hosts. Raises UsageError for limits that contradict."""
        least = self.minimum()
        if least < 1:
            raise UsageError(f"hvdtune.run: min_num_proc={least} is less than 1")
        if self.most is not None and self.most < least:
            raise UsageError(
                f"hvdtune.run: min_num_proc={least} is more than max_num_proc={self.most}"
            )
        if room is not None and room < least:
            raise UsageError(
                f"hvdtune.run: min_num_proc={least} is more than the hosts' {room} slots"
            )
        # As with Horovod, num_proc does not limit what a script discovers.
        usual = sys.maxsize if room is None else self.ranks if self.ranks >= least > 0 else room
        return self.most or (room if self.ranks == 1 and room else usual)

    def cooldown_times(self) -> Cooldown | None:
        if self.cooldown is None:
            return None
        first, most = self.cooldown
        if not 0 < first <= most:
            raise UsageError(
                f"hvdtune.run: cooldown_range={tuple(self.cooldown)} must be two durations in "
                "seconds, the shorter one first"
            )
        return Cooldown(first, most)


def run_elastic(
    call: FunctionCall,
    limits: CallLimits,
    listed: tuple[Host, ...] | None,
    options_of: Callable[[FunctionCall, Sequence[Slot]], JobOptions],
) -> list[Any]:
    """Calls the function on every worker. Returns the results of the last generation, by rank.

    Args:
        listed: the hosts that were given, None for none.
        options_of: returns how the ranks are run.
    """
    cooldown = limits.cooldown_times()
    with contextlib.ExitStack() as stack, naming_arguments():
        discovery = _discovery(limits, listed)
        stack.callback(discovery.close)
        hosts = tuple(Host(name, slots) for name, slots in discovery.found.items())
        room = sum(host.slots for host in hosts)
        most = limits.maximum(room if discovery.is_fixed else None)
        options = options_of(call, plan_slots(hosts or this_host(1), room or 1))
        function = stack.enter_context(sealed_file("hvdtune-function", call.content))
        results: dict[int, int] = {}

        def descriptors(worker: int) -> tuple[int, ...]:
            results[worker] = stack.enter_context(result_file())
            return function, results[worker]

        remote = remote_hosts(host.name for host in hosts)
        # A host that is discovered later may be another machine.
        elsewhere = remote if discovery.is_fixed else ("a discovered host",)
        ssh = checked_ssh_args(elsewhere, *call.login)
        plan = JobPlan(call.command, (), call.title, descriptors, ssh=ssh)
        size = ElasticLimits(
            min_ranks=limits.minimum(),
            max_ranks=most,
            elastic_timeout_s=_timeout_s(call),
            reset_limit=limits.reset_limit,
            cooldown=cooldown,
        )
        writers: list[Writer] = [write_here]
        if call.folder is not None:
            writers.append(stack.enter_context(worker_files(call.folder)))
        workers = ElasticWorkers(plan, {}, options, size, discovery, _say, writers=writers)
        with interruptible(), Job(workers, options.terminate_grace_s) as job:
            report = job.wait()
        # Workers that have left returned nothing that the job still needs.
        ended = range(len(results)) if report.returncode else workers.members
        by_worker = {worker: str(results[worker]) for worker in ended}
        return settle(
            report.returncode, report.reason, report.rank, by_worker, call.title, "worker"
        )


@contextlib.contextmanager
def naming_arguments() -> Iterator[None]:
    """Gives an error about an argument the name that `hvdtune.run` has for it."""
    try:
        yield
    except ArgumentError as error:
        raise UsageError(f"hvdtune.run: {error.words(_NAMES)}") from None


def _discovery(limits: CallLimits, listed: tuple[Host, ...] | None) -> Discovery:
    if limits.script is not None:
        if listed is not None:
            raise UsageError("hvdtune.run: give host_discovery_script= or hosts, not both")
        return DiscoveryScript(limits.script, limits.slots, _say)
    here = max(limits.ranks, limits.minimum(), limits.most or 0)
    return FixedHosts(this_host(here) if listed is None else listed)


def _timeout_s(call: FunctionCall) -> float:
    """How long the job waits for ranks, by HOROVOD_ELASTIC_TIMEOUT."""
    asked: Any = launcher_values(worker_environ(call.variables)).get("HOROVOD_ELASTIC_TIMEOUT")
    return asked or _ELASTIC_TIMEOUT_S


def _say(sentence: str) -> None:
    print(f"hvdtune: {sentence}", file=sys.stderr)
