"""How fast the ranks' links are: a small job of hvdtune's own. Its ranks run this file."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from hvdtune.core.config.knobs import default_setting
from hvdtune.core.job.child_command import module_command, of_ranks
from hvdtune.errors import LaunchError
from hvdtune.launcher.ranks import JobOptions, JobPlan, start_ranks

_SMALL_ELEMENTS: Final = 1
_LARGE_ELEMENTS: Final = 1 << 20
_FLOAT_BYTES: Final = 4


def probe_link(plan: JobPlan, options: JobOptions) -> dict[str, float]:
    """`latency_us` of an allreduce of 4 bytes among the plan's ranks, `mb_per_s` of one of 4 MiB.

    Takes about a second, most of it for starting. All knobs are at their defaults. The best of
    several is taken: what disturbs only slows. Raises LaunchError when the job fails.
    """
    command = module_command("hvdtune.launcher.link_probe", of_ranks())
    probe = replace(plan, command=command, title="the link probe")
    with start_ranks(probe, default_setting(), replace(options, timeline="")) as job:
        report = job.wait()
    answers = [line for line in job.tail(0) if line.startswith("{")]
    if report.returncode or not answers:
        raise LaunchError(report.reason or "the probe ended without a result")
    link: dict[str, float] = json.loads(answers[-1])
    return link


def _main() -> None:
    import numpy as np

    from hvdtune.core.rank.collectives import ReduceOp, Reduction, allreduce_request, synchronize
    from hvdtune.core.rank.handles import start
    from hvdtune.core.rank.runtime import init, rank, shutdown

    init()
    data = np.zeros(_LARGE_ELEMENTS, np.float32)

    def reduce(elements: int) -> None:
        what = [("float32", (elements,))]
        request = allreduce_request("probe", what, Reduction(ReduceOp.SUM))
        address = [data.ctypes.data]
        synchronize(start(request, address, address, (data,), lambda _: None, ()))

    small_s = _fastest(lambda: reduce(_SMALL_ELEMENTS), times=200)
    large_s = _fastest(lambda: reduce(_LARGE_ELEMENTS), times=8)
    if rank() == 0:
        rate = _LARGE_ELEMENTS * _FLOAT_BYTES / 1e6 / large_s
        print(json.dumps({"latency_us": round(1e6 * small_s, 1), "mb_per_s": round(rate, 1)}))
    shutdown()


def _fastest(act: Callable[[], None], times: int) -> float:
    durations = []
    for _ in range(times):
        began = time.perf_counter()
        act()
        durations.append(time.perf_counter() - began)
    return min(durations)


if __name__ == "__main__":
    _main()
