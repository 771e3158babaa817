"""RUN/pairs.jsonl: one line per measured pair, on disk before the next one starts."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec
from scipy import stats

from hvdtune.core.knobs import Setting, Value
from hvdtune.errors import StudyError

FORMAT_VERSION = 1
_OWN_DOING_P = 0.3


@dataclass(frozen=True)
class Pair:
    """A measured pair; `log_ratio` is positive when the setting is faster than the reference.

    `launch` counts the starts of the script over the whole study, `steps` the steps in its four
    blocks, `t_unix` is when it was finished. `log_ratio` is that of the study's objective,
    `further` has those of the others. `at_fault` names the blocks in which something else
    happened ("A", "B" or "AB"), `set_aside` is why the pair was measured again, "" if it was not.
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

    def append(self, pair: Pair) -> None:
        """Write the pair and wait until it is on disk."""
        line = json.dumps({"v": FORMAT_VERSION, **msgspec.to_builtins(pair)}) + "\n"
        try:
            rest = memoryview(line.encode())
            while rest:
                rest = rest[os.write(self._fd, rest) :]
            os.fsync(self._fd)
        except OSError as error:
            raise StudyError(f"cannot write {self._path}: {error.strerror}") from error
        self.pairs.append(pair)

    def of(self, phase: str, setting: Setting | None = None) -> list[Pair]:
        """The pairs of a phase that count, of one setting if given, oldest first."""
        if setting is None:
            return [pair for pair in self.pairs if pair.phase == phase and not pair.set_aside]
        history = [pair for pair in self.pairs if pair.setting == setting]
        return counted([pair for pair in history if pair.phase == phase], history)

    def close(self) -> None:
        """Close the file; `pairs` stays readable."""
        os.close(self._fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


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
    return [_pair(path, number, line) for number, line in enumerate(lines, 1)], whole_bytes


def _pair(path: Path, number: int, line: bytes) -> Pair:
    try:
        fields: dict[str, Any] = msgspec.json.decode(line, type=dict[str, Any])
        version = fields.pop("v", None)
        if version != FORMAT_VERSION:
            raise StudyError(f"{path}:{number}: version {version} of a pair is not known here")
        return msgspec.convert(fields, Pair)
    except msgspec.MsgspecError as error:
        raise StudyError(f"{path}:{number}: not a pair: {error}") from error
