"""What a study is given, and where it leaves things: for those that start one and run none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hvdtune.core.config.knobs import Knob, Setting

if TYPE_CHECKING:
    from hvdtune.tuner.measure.host_load import HostProbe
    from hvdtune.tuner.measure.live_run import StartJob
    from hvdtune.tuner.measure.restart_run import ByRestarting
    from hvdtune.tuner.storage.shared_study import SharedStudy

PROFILE_FILE: Final = "profile.yaml"
VERDICT_FILE: Final = "verdict.json"
REPORT_FILE: Final = "report.md"

# Raw traces of the ranks of a launch, rank 0's first.
Traces = Callable[[int], Sequence[Path]]


@dataclass(frozen=True)
class Study:
    """What is tuned.

    `default` is the complete setting with which `start_job` starts the script, `hosts` how many
    hosts it runs on; `fingerprint` goes into the profile. `first_settings` are tried right after
    the default. `host` tells of disturbances, `traces` where the raw traces of a launch lie. With
    ByRestarting every block is a launch of its own, and nothing goes on after the verdict.
    `attached` is the number of the launch that `start_job` returns first, where that runs already.
    With `share` other tuners take part.
    """

    start_job: StartJob | ByRestarting
    knobs: Sequence[Knob]
    default: Setting
    hosts: int = 1
    fingerprint: Mapping[str, Any] | None = None
    first_settings: Sequence[Setting] = ()
    host: HostProbe | None = None
    traces: Traces | None = None
    attached: int | None = None
    share: SharedStudy | None = None


@dataclass(frozen=True)
class RawTraces:
    """The raw traces in a run folder: `traces(launch)` are those of its ranks, rank 0's first."""

    run_dir: Path
    ranks: int

    def __call__(self, launch: int) -> list[Path]:
        folder = launch_folder(self.run_dir, launch)
        return [folder / f"rank-{rank}.hvt" for rank in range(self.ranks)]


def launch_folder(run_dir: Path, launch: int) -> Path:
    """Where the raw traces of a launch are."""
    return run_dir / "ranks" / f"launch-{launch}"
