"""The fingerprint of a job before it starts, and its comparison with a profile's."""

from __future__ import annotations

import platform
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import hvdtune
from hvdtune.core.job.channel import StepDone
from hvdtune.core.job.child_command import of_ranks
from hvdtune.core.rank.affinity import usable_processors
from hvdtune.core.toolchain.frameworks import installed_version
from hvdtune.errors import HvdtuneError
from hvdtune.launcher.job import Job
from hvdtune.launcher.link_probe import probe_link
from hvdtune.launcher.ranks import JobOptions, JobPlan
from hvdtune.tuner.results.fingerprint import (
    Fingerprint,
    differences,
    parse_fingerprint,
    traced_tensors,
)
from hvdtune.tuner.results.profile import NearProfile, nearest_profile, read_profile
from hvdtune.workflows.requests import JobRequest, StatusReporter
from hvdtune.workflows.run_folder import RUNS

_FRAMEWORKS: Final = ("torch", "tensorflow")
_STEPS_SEEN: Final = 10
_POLL_S: Final = 0.25


def fingerprint(
    plan: JobPlan, options: JobOptions, probe: StatusReporter | None = None
) -> dict[str, Any]:
    """Return the fingerprint of a job before it starts, without the script's tensors.

    Args:
        probe: reports errors while a small job measures the link, for about a second; None: the
            link is not measured.
    """
    known: dict[str, Any] = {
        "world": len(plan.slots),
        "slots": sorted(Counter(slot.host for slot in plan.slots).values(), reverse=True),
        "transport": options.transport,
        "processor": _processor(),
        **software(plan.command),
    }
    if probe is not None and len(plan.slots) > 1:
        try:
            known["link"] = probe_link(plan, options)
        except HvdtuneError as error:
            probe.warning(f"the link between the ranks was not measured: {error}")
    return known


def software(command: Sequence[str]) -> dict[str, Any]:
    """Return the entries of a fingerprint that do not depend on the number of ranks."""
    python = of_ranks()
    found = installed_frameworks() if python.frameworks is None else python.frameworks
    return {
        "cores": usable_processors(),
        "hvdtune": hvdtune.__version__,
        "python": python.version,
        "frameworks": dict(found),
        "command": list(command),
    }


def past_winner(known: Mapping[str, Any], folder: Path = RUNS) -> NearProfile | None:
    """Return the result of the study in `folder` whose fingerprint is nearest, if any."""
    return nearest_profile(parse_fingerprint(known), folder)


def warn_of_profile(job: JobRequest, reporter: StatusReporter) -> None:
    """Warn of each difference between the job and the job that its profile was measured on."""
    path = job.values.profile
    if path is None:
        return
    profile = read_profile(path)
    if profile.is_unverified:
        reporter.warning(f"{path} is unverified: {profile.unverified_text}")
    there = parse_fingerprint(profile.fingerprint)
    probe = None if there.link is None else reporter
    known = fingerprint(job.plan, job.options, probe)
    for difference in differences(there, parse_fingerprint(known)):
        reporter.warning(f"{path} was measured elsewhere: {difference}")


def warn_of_other_tensors(path: Path, job: Job, raw: Path, reporter: StatusReporter) -> None:
    """Warn if the profile at `path` was measured with other tensors.

    Returns when a few steps are recorded in `raw`, or when the job has ended.
    """
    there = Fingerprint(tensors=parse_fingerprint(read_profile(path).fingerprint).tensors)
    if there.tensors is None:
        return
    steps = 0
    while steps < _STEPS_SEEN and job.poll() is None:
        steps += isinstance(job.next_event(_POLL_S), StepDone)
    # The recorder writes every 50 ms.
    time.sleep(_POLL_S)
    here = Fingerprint(tensors=traced_tensors(raw / "rank-0.hvt"))
    for difference in differences(there, here):
        reporter.warning(f"{path} was measured elsewhere: {difference}")


def installed_frameworks() -> Iterator[tuple[str, str]]:
    """Yield the names and versions of the installed frameworks."""
    for name in _FRAMEWORKS:
        if version := installed_version(name):
            yield name, version


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()
