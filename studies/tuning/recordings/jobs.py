"""A scenario's job, started as the launcher starts a script's."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from hvdtune.core.config.knobs import Setting, default_setting
from hvdtune.core.job.channel import JobChannel
from hvdtune.errors import HvdtuneError
from hvdtune.launcher.hosts import Host
from hvdtune.launcher.job import Job
from hvdtune.launcher.plan import plan_slots
from hvdtune.launcher.ranks import JobOptions, JobPlan, start_ranks
from studies.tuning.recordings.scenarios import SCENARIOS
from tests.parallel import netns


class Starter:
    """Starts jobs of one scenario, on hosts of its own where it has several."""

    def __init__(self, name: str, network: netns.Network | None, *options: str) -> None:
        self._scenario = SCENARIOS[name]
        self._hosts = () if network is None else network.hosts
        places = {host.name: dataclasses.asdict(host) for host in self._hosts}
        command = (
            sys.executable,
            "-m",
            "studies.tuning.recordings.worker",
            name,
            json.dumps(places),
            *options,
        )
        names = [host.name for host in self._hosts] or ["localhost"]
        each = self._scenario.ranks // self._scenario.hosts
        slots = plan_slots([Host(name, each) for name in names], self._scenario.ranks)
        self._plan = JobPlan(command, slots, name)
        self.default = default_setting()

    def start(self, setting: Setting, launch: int = 0) -> Job:
        """A job with this setting, whatever the launch's number.

        Raises LaunchError when it cannot be started.
        """
        del launch
        options = JobOptions(environ={"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"})
        return start_ranks(self._plan, setting, options, open_channel=self._channel)

    def _channel(self, key: bytes, ranks: int, timeout_s: float) -> JobChannel:
        if not self._hosts:
            return JobChannel(key, ranks, start_timeout_s=timeout_s)
        with self._hosts[0].entered():
            return JobChannel(key, ranks, self._hosts[0].address, timeout_s)


@contextmanager
def starter(name: str, *options: str) -> Iterator[Starter]:
    """Makes the scenario's hosts, if it has several, for as long as the block runs.

    `options` are the worker's.
    Raises HvdtuneError where hosts cannot be made.
    """
    scenario = SCENARIOS[name]
    with ExitStack() as stack:
        network = None
        if scenario.hosts > 1:
            if reason := netns.why_not():
                raise HvdtuneError(f"{name} needs hosts: {reason}")
            network = stack.enter_context(netns.network(scenario.hosts))
            network.limit(scenario.rate)
        yield Starter(name, network, *options)


def tail(job: Job) -> str:
    """The last lines of rank 0, for an error."""
    with contextlib.suppress(IndexError):
        return " | ".join(job.tail(0)[-3:])
    return ""
