"""Where in the timeline the critical path runs: in which step through which rank."""

from typing import Any

from hvdtune.dashboard.data import RunView
from hvdtune.dashboard.tiles import MAX_MARKS, TileWindow
from hvdtune.timeline.analysis.metrics import critical_path
from hvdtune.timeline.analysis.recorded import says_of


def path_within(run: RunView, window: TileWindow) -> dict[str, Any]:
    """The critical path in a window.

    Returns:
        "text": what most of it is, over all steps; "steps": [begin_ns, end_ns, rank, step] of each
        step that touches the window, in order; none where they are too many to be told apart;
        "hidden": how many they are then.
    """
    rows = run.critical_steps
    within = rows[(rows["begin_ns"] < window.last_ns) & (rows["end_ns"] > window.first_ns)]
    few = len(within) <= MAX_MARKS
    columns = within[["begin_ns", "end_ns", "rank", "step"]].astype("int64")
    return {
        "text": says_of(run.trace, "critical_path")
        or critical_path.sentence(critical_path.table(run.steps)),
        "steps": columns.to_numpy().tolist() if few else [],
        "hidden": 0 if few else len(within),
    }
