"""What a study is given: for those that start one and run none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hvdtune.core.config.knobs import Knob, Setting

if TYPE_CHECKING:
    from pathlib import Path

    from hvdtune.tuner.measure.host_load import HostProbe
    from hvdtune.tuner.measure.restart_run import ByRestarting
    from hvdtune.tuner.measure.run import StartJob
    from hvdtune.tuner.measure.trace_files import Traces
    from hvdtune.tuner.search.known_setting import KnownSetting
    from hvdtune.tuner.storage.shared_study import SharedStudy


@dataclass(frozen=True)
class EarlierRuns:
    """Where other runs of an elastic job may be: the folders above theirs. `run` is what this one's
    run.json has."""

    run: Mapping[str, Any]
    parents: tuple[Path, ...]


@dataclass(frozen=True)
class Study:
    """What is tuned.

    `default` is the complete setting with which `start_job` starts the script, `hosts` how many
    hosts it runs on; `fingerprint` goes into the profile. `first_settings` are tried right after
    the default; where `near` names a study, the last of them is what that ended with. `host` tells
    of disturbances, `traces` where the raw traces of a launch lie. With ByRestarting every block is
    a launch of its own, and nothing goes on after the verdict. `attached` is the number of the
    launch that `start_job` returns first, where that runs already. With `share` other tuners take
    part. `membership` are the ranks of an elastic job for which the verdict will hold, "" where
    ranks do not change. `known` is what earlier launches of the job have ended with; it is measured
    before anything is searched. Of an elastic job it is found for each membership, in `earlier`.
    """

    start_job: StartJob | ByRestarting
    knobs: Sequence[Knob]
    default: Setting
    hosts: int = 1
    fingerprint: Mapping[str, Any] | None = None
    first_settings: Sequence[Setting] = ()
    near: str = ""
    host: HostProbe | None = None
    traces: Traces | None = None
    attached: int | None = None
    share: SharedStudy | None = None
    membership: str = ""
    known: KnownSetting | None = None
    earlier: EarlierRuns | None = None
