"""`hvdtune run --trials --storage`: which study of a database this tuner takes part in."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections import Counter
from pathlib import Path
from typing import Any

import hvdtune
from hvdtune.cli.options import RunOptions
from hvdtune.core.config import storage_url
from hvdtune.core.knobs import Setting
from hvdtune.launch.plan import Slot
from hvdtune.launch.run import JobOptions, JobPlan
from hvdtune.tuner.database import parse_url
from hvdtune.tuner.share import Share

_NAME_DIGITS = 8


def chosen_share(
    options: RunOptions, plan: JobPlan, job_options: JobOptions, default: Setting
) -> Share | None:
    """The study that --storage or HVDTUNE_STORAGE names; None: the run folder has its own.

    Without --study-name tuners that do the same meet: the name has a digest of the command, the
    places of its ranks and what is searched. Raises UsageError for a URL that cannot be.
    """
    url = options.storage or storage_url()
    if url is None:
        return None
    parse_url(url)
    same = {
        "command": list(options.command),
        "slots": slots_per_host(plan.slots),
        "default": dict(default),
        "knobs": options.knobs,
        "fix": sorted(options.fix or ()),
    }
    digest = hashlib.sha256(json.dumps(same, sort_keys=True).encode()).hexdigest()
    name = options.study_name or f"{Path(plan.title).stem}-{digest[:_NAME_DIGITS]}"
    return Share(url, name, comparable(plan, job_options))


def comparable(plan: JobPlan, job_options: JobOptions) -> dict[str, Any]:
    """What must be equal for the step times of two jobs to tell the same about a setting."""
    return {
        "hvdtune": hvdtune.__version__,
        "command": list(plan.command),
        "slots": slots_per_host(plan.slots),
        "transport": job_options.transport,
        "cores": len(os.sched_getaffinity(0)),
        "processor": _processor(),
    }


def slots_per_host(slots: tuple[Slot, ...]) -> list[int]:
    """How many ranks each host has, whatever the hosts are called."""
    return list(Counter(slot.host for slot in slots).values())


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()
