"""Ranks of processes where nothing in a profile says them."""

from collections.abc import Mapping

from hvdtune.plural import counted
from hvdtune.timeline.reading.json.damage import DamageReport


def ranks_by_device(devices: Mapping[str, set[int]], report: DamageReport) -> dict[str, int]:
    """Numbers the processes that use GPUs, by their first device; none where there is only one.

    Args:
        devices: that each process uses, by its pid.
    """
    if len(devices) < 2:
        return {}
    order = sorted(devices, key=lambda pid: (min(devices[pid]), int(pid)))
    count = counted(len(order), "process")
    report.problem(f"the ranks of its {count} are not recorded; they are numbered by their GPUs")
    return {pid: rank for rank, pid in enumerate(order)}
