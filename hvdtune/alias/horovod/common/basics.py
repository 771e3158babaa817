"""Horovod's object behind its functions; here the functions come first."""

import inspect
from typing import Final

from hvdtune import recording
from hvdtune.core.rank import basics, process_sets
from hvdtune.core.rank.collectives import ReduceOp


class HorovodBasics:
    """What a process asks about its job. Every instance speaks of the process's one job.

    Args:
        pkg_path, args: where Horovod looks for its library; hvdtune knows where its own is.
    """

    def __init__(self, pkg_path: str, *args: str) -> None:
        pass

    start_timeline = staticmethod(recording.start_timeline)
    stop_timeline = staticmethod(recording.stop_timeline)
    _get_process_set_ids_and_ranks = staticmethod(process_sets.ids_and_ranks)


# Names that every framework has, and Horovod's object has not.
_ELSEWHERE: Final = (
    "add_process_set", "knob", "mark_step", "remove_process_set", "span", "variant",
)  # fmt: skip
for _name in basics.__all__:
    _value = getattr(basics, _name)
    if isinstance(_value, ReduceOp):
        setattr(HorovodBasics, _name, _value)
    elif inspect.isfunction(_value) and _name not in _ELSEWHERE:
        setattr(HorovodBasics, _name, staticmethod(_value))
