"""RUN/pairs.jsonl: one line per measured pair, on disk before the next one starts."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from hvdtune.core.config.knobs import Setting, Value
from hvdtune.errors import StudyError

if TYPE_CHECKING:
    from typing_extensions import Self

FORMAT_VERSION = 1
_OWN_DOING_P = 0.3


@dataclass(frozen=True)
class Pair:
    """A measured pair; `log_ratio` is positive when the setting is faster than the reference.

    The reference is the default, or while a study searches a setting that is in use in its place;
    `reference_log_ratio` is what that is taken to gain over the default.

    `launch` counts the starts of the script over the whole study, `steps` the steps in its four
    blocks, `t_unix` is when it was finished. `log_ratio` is that of the study's objective,
    `further` has those of the others. `at_fault` names the blocks in which something else
    happened ("A", "B" or "AB"), `set_aside` is why the pair was measured again, "" if it was not.
    `by` names the tuner that measured it where several share a study, "" in a tuner's own log.
    `typical_log_ratio` is that of the step time without each block's longest steps, None where
    another objective is studied or single steps are not known.
    """

    launch: int
    phase: str
    trial: int | None
    setting: Mapping[str, Value]
    reference: Mapping[str, Value]
    log_ratio: float
    setting_step_ms: float
    reference_step_ms: float
    steps: int
    order: str
    t_unix: float
    further: Mapping[str, float] = field(default_factory=dict)
    set_aside: str = ""
    at_fault: str = ""
    by: str = ""
    typical_log_ratio: float | None = None
    reference_log_ratio: float = 0.0

    @property
    def over_default(self) -> float:
        """The log ratio of the default over the setting."""
        return self.log_ratio + self.reference_log_ratio

    @property
    def search_log_ratio(self) -> float:
        """The same by which settings are searched: of typical steps where they are known."""
        own = self.log_ratio if self.typical_log_ratio is None else self.typical_log_ratio
        return own + self.reference_log_ratio


class PairLog:
    """The log of one study, opened for appending; used by the tuner's thread only.

    A line that a killed tuner left unfinished is cut off when the log is opened.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            self.pairs, whole_bytes = _read(path)
            os.ftruncate(self._fd, whole_bytes)
        except BaseException:
            os.close(self._fd)
            raise

    @property
    def next_launch(self) -> int:
        """The number of the first launch that has no pair here."""
        return 1 + max((pair.launch for pair in self.pairs), default=-1)

    def append(self, pair: Pair) -> None:
        """Write the pair and wait until it is on disk."""
        line = format_pair(pair) + "\n"
        size_bytes = os.fstat(self._fd).st_size
        try:
            rest = memoryview(line.encode())
            while rest:
                rest = rest[os.write(self._fd, rest) :]
            os.fsync(self._fd)
        except OSError as error:
            # A disk that is full takes part of a line; the next one must not follow that.
            os.ftruncate(self._fd, size_bytes)
            raise StudyError(f"cannot write {self._path}: {error.strerror}") from error
        self.pairs.append(pair)

    def of(self, phase: str, setting: Setting | None = None) -> list[Pair]:
        """The pairs of a phase that count, of one setting if given, oldest first."""
        return pairs_of(self.pairs, phase, setting)

    def close(self) -> None:
        """Close the file; `pairs` stays readable."""
        os.close(self._fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def pairs_of(pairs: Sequence[Pair], phase: str, setting: Setting | None = None) -> list[Pair]:
    """The pairs of one tuner that count in a phase, of one setting if given.

    What later phases find about the setting does not change what an earlier one has counted.
    """
    if setting is None:
        return [pair for pair in pairs if pair.phase == phase and not pair.set_aside]
    history = [pair for pair in pairs if pair.setting == setting]
    while history and history[-1].phase != phase:
        history.pop()
    return counted([pair for pair in history if pair.phase == phase], history)


def verified(pairs: Sequence[Pair]) -> list[Pair]:
    """The pairs that count of the setting that a tuner verified last."""
    own = [pair for pair in pairs if not pair.by]
    settings = [pair.setting for pair in own if pair.phase == "verify"]
    return pairs_of(own, "verify", dict(settings[-1])) if settings else []


def by_launch(pairs: Sequence[Pair]) -> dict[int, list[float]]:
    """The log ratios of each launch by its number, launches in order."""
    launches: dict[int, list[float]] = {}
    for pair in pairs:
        launches.setdefault(pair.launch, []).append(pair.log_ratio)
    return {launch: launches[launch] for launch in sorted(launches)}


def counted(pairs: Sequence[Pair], history: Sequence[Pair]) -> list[Pair]:
    """The pairs that count: those not set aside, or all where setting them aside is not fair.

    It is fair as long as the blocks at fault are about as often the reference's as the setting's.
    Where they are much more often those of one side, the disturbance is that side's own doing.

    Args:
        pairs: of one setting.
        history: all pairs of that setting, by which its own doing shows.
    """
    in_reference = sum("A" in pair.at_fault for pair in history)
    in_setting = sum("B" in pair.at_fault for pair in history)
    if in_reference + in_setting == 0:
        return list(pairs)
    from scipy import stats  # takes a second, which no command should wait for that needs none

    p_value = float(stats.binomtest(in_setting, in_reference + in_setting).pvalue)
    if p_value < _OWN_DOING_P:
        return list(pairs)
    return [pair for pair in pairs if not pair.set_aside]


def read_pairs(path: Path) -> tuple[Pair, ...]:
    """The finished pairs of a log that may be growing; none when there is no such file.

    Raises StudyError naming the line that is not a pair.
    """
    if not path.exists():
        return ()
    return tuple(_read(path)[0])


def _read(path: Path) -> tuple[list[Pair], int]:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise StudyError(f"cannot read {path}: {error.strerror}") from error
    whole_bytes = data.rfind(b"\n") + 1
    lines = data[:whole_bytes].splitlines()
    pairs = [parse_pair(line, f"{path}:{number}") for number, line in enumerate(lines, 1)]
    return pairs, whole_bytes


def format_pair(pair: Pair) -> str:
    """A pair as a line of the log, without its end."""
    return json.dumps({"v": FORMAT_VERSION, **msgspec.to_builtins(pair)})


def parse_pair(text: bytes | str, where: str) -> Pair:
    """A pair from its JSON text.

    Raises StudyError naming `where` when it is not a pair, or one of another version.
    """
    try:
        fields: dict[str, Any] = msgspec.json.decode(text, type=dict[str, Any])
        version = fields.pop("v", None)
        if version != FORMAT_VERSION:
            raise StudyError(f"{where}: unknown version {version} of a pair")
        return msgspec.convert(fields, Pair)
    except msgspec.MsgspecError as error:
        raise StudyError(f"{where}: not a pair: {error}") from error
