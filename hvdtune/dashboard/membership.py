"""Who was in an elastic job when, and what its resets cost, as frames for the page."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd

FILE_NAME = "membership.json"
PHASES = ("detection", "agreement", "mesh", "state", "first step")


@dataclass(frozen=True)
class MembershipFrames:
    """One elastic job; times are in seconds since its start.

    stays: worker, host, slot, generation, rank, began_s, ended_s.
    resets: began_s, one column of seconds for each of PHASES, total_s.
    sentences: what the job has said at its end.
    """

    stays: pd.DataFrame
    resets: pd.DataFrame
    sentences: tuple[str, ...]


class _Stay(msgspec.Struct):
    worker: int
    host: str
    slot: int
    generation: int
    rank: int
    began_s: float
    ended_s: float


class _Reset(msgspec.Struct):
    began_s: float
    phases_s: dict[str, float]


class _Known(msgspec.Struct):
    stays: list[_Stay]
    resets: list[_Reset]
    sentences: list[str]


class _Others(msgspec.Struct):
    hvdtune_elastic: _Known


class _Document(msgspec.Struct):
    otherData: _Others


def open_membership(folder: Path) -> MembershipFrames | None:
    """What a run folder tells of its elastic job; None where there was none, or it is damaged."""
    try:
        known = msgspec.json.decode((folder / FILE_NAME).read_bytes(), type=_Document)
    except (OSError, msgspec.MsgspecError):
        return None
    found = known.otherData.hvdtune_elastic
    rows = [
        {"began_s": reset.began_s, **{name: reset.phases_s.get(name, 0.0) for name in PHASES}}
        for reset in found.resets
    ]
    resets = pd.DataFrame(rows, columns=["began_s", *PHASES])
    return MembershipFrames(
        pd.DataFrame(_rows(found.stays), columns=list(_Stay.__struct_fields__)),
        resets.assign(total_s=resets[list(PHASES)].sum(axis=1)),
        tuple(found.sentences),
    )


def _rows(found: list[_Stay]) -> list[dict[str, Any]]:
    return [msgspec.structs.asdict(stay) for stay in found]
