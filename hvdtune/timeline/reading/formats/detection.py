"""Which program recorded a file, by what is in it."""

from collections.abc import Collection, Sequence
from typing import Any, Protocol

import pandas as pd

from hvdtune.timeline.model.trace import InferEvents
from hvdtune.timeline.reading.formats import (
    flight_recorder,
    generic,
    horovod,
    hvdtune_json,
    kineto,
    nccl_inspector,
    nccl_ras,
)
from hvdtune.timeline.reading.formats.gpu_profile import NSYS, ROCPD
from hvdtune.timeline.reading.json.parsed import ParsedFile


class Format(Protocol):
    """What says what a program's files mean: a module, or an object."""

    NAME: str
    NAMES_TENSORS: bool  # else a tensor of the model is all collectives of one kind
    GAP: str  # what such a file never tells, however it was recorded; "": nothing

    def recognizes(self, parsed: ParsedFile, /) -> bool:
        """Whether it is of this kind."""

    def finish(self, frame: pd.DataFrame, parsed: ParsedFile, /) -> dict[int, dict[str, Any]]:
        """Fills in the model's columns; what is known of each rank."""

    def kind(self, name: str, category: str, /) -> str:
        """The kind of events of a name and a category; see `slices.KIND_TEXTS`."""

    def rank_of_track(self, parsed: ParsedFile, /) -> list[int]:
        """The rank that each track is of, -1 where the file does not say."""

    def origin_unix_ns(self, parsed: ParsedFile, /) -> int | None:
        """The file's time 0 in ns since 1970."""

    @property
    def infer_events(self) -> InferEvents | None:
        """Completes the events that are among its slices, where findings need more."""


# The first that recognizes a file has it.
FORMATS: tuple[Format, ...] = (
    hvdtune_json,
    NSYS,
    ROCPD,
    flight_recorder,
    nccl_inspector,
    nccl_ras,
    kineto,
    horovod,
    generic,
)

# Recordings of hvdtune's, and what they are exported to.
_OWN = frozenset({"hvdtune", hvdtune_json.NAME})


def evidence_of(names: Sequence[str]) -> tuple[list[str], InferEvents | None]:
    """The gaps that such files always have, and how their events are completed.

    Args:
        names: of each file, its format's.
    """
    used = [each for each in FORMATS if each.NAME in names]
    gaps = [each.GAP for each in used if each.GAP]
    beside = {*names} - {kineto.NAME}
    if len(beside) == 1 < len({*names}) and beside <= {horovod.NAME, *_OWN}:
        files = [index for index, name in enumerate(names) if name == kineto.NAME]
        return gaps, kineto.infer_beside(files, has_steps=beside <= _OWN)
    return gaps, used[0].infer_events if len(used) == len({*names}) == 1 else None


def infers_events(name: str) -> bool:
    """Whether the events of a format's files are completed: they are of a training."""
    return any(each.infer_events is not None for each in FORMATS if name == each.NAME)


def names_tensors(names: Collection[str]) -> bool:
    """Whether files of any of these formats say which tensor a collective is about."""
    return any(each.NAMES_TENSORS for each in FORMATS if each.NAME in names)


def format_of(parsed: ParsedFile, name: str = "") -> Format:
    """The module that knows what a file means.

    Args:
        name: of its format, where that is known; a part of an export cannot always be recognized.
    """
    known = {each.NAME: each for each in FORMATS}.get(name)
    return known or next(each for each in FORMATS if each.recognizes(parsed))
