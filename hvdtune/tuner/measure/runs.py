"""The run of a study, by how its script is started."""

from hvdtune.core.config.knobs import Setting
from hvdtune.tuner.measure.host_load import HostProbe
from hvdtune.tuner.measure.live_run import LiveRun
from hvdtune.tuner.measure.progress import Clock, Reporter
from hvdtune.tuner.measure.restart_run import ByRestarting, RestartRun
from hvdtune.tuner.measure.run import Run, StartJob
from hvdtune.tuner.space.tune_options import TuneOptions


def make_run(
    start: StartJob | ByRestarting,
    default: Setting,
    options: TuneOptions,
    clock: Clock,
    reporter: Reporter,
    *,
    first_launch: int = 0,
    attached: int | None = None,
    host: HostProbe | None = None,
) -> Run:
    """A run by restarting, or a live one.

    Args:
        default: the reference of every pair.
        first_launch: the number of the first launch; a resumed study goes on counting.
        attached: the number of the launch that runs already, if one does.
        host: tells what else happens while blocks are taken.
    """
    if isinstance(start, ByRestarting):
        return RestartRun(
            start, default, options, clock, reporter, first_launch=first_launch, host=host
        )
    return LiveRun(
        start,
        default,
        options,
        clock,
        reporter,
        first_launch=first_launch if attached is None else attached,
        host=host,
        attached=attached is not None,
    )
