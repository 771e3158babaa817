"""`hvdtune run --trials --storage`: which study of a database this tuner takes part in."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from hvdtune.cli.messages import tell
from hvdtune.cli.options import RunOptions
from hvdtune.core.config.environment import storage_url
from hvdtune.launch.run import JobOptions, JobPlan
from hvdtune.tuner.storage.database import parse_url, shown_url
from hvdtune.tuner.storage.shared_study import SharedStudy
from hvdtune.workflows.fingerprint import fingerprint

_NAME_DIGITS: Final = 8


def chosen_share(
    options: RunOptions, plan: JobPlan, job_options: JobOptions, study: Mapping[str, Any]
) -> SharedStudy | None:
    """The study that --storage or HVDTUNE_STORAGE names; None: the run folder has its own.

    Without --study-name tuners that do the same meet: the name has a digest of the command, the
    places of its ranks and what is searched. Raises UsageError for a URL that cannot be.

    Args:
        study: what is searched, as run.json has it.
    """
    url = options.storage or storage_url()
    if url is None:
        return None
    parse_url(url)
    # What the link gives changes from minute to minute.
    known = fingerprint(plan, job_options, probe=False)
    same = {"command": known["command"], "slots": known["slots"], **study}
    digest = hashlib.sha256(json.dumps(same, sort_keys=True).encode()).hexdigest()
    name = options.study_name or f"{Path(plan.title).stem}-{digest[:_NAME_DIGITS]}"
    tell(f"study {name} in {shown_url(url)}")
    return SharedStudy(url, name, {**known, "processor": _processor(), "study": dict(study)})


def told(share: SharedStudy | None) -> dict[str, str]:
    """What run.json says of it: a run is continued in the same study only."""
    return {} if share is None else {"storage": shown_url(share.url), "name": share.study}


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()
