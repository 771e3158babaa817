"""RUN/pairs.jsonl: one line per measured pair, on disk before the next one starts."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from hvdtune.core.knobs import Setting, Value
from hvdtune.errors import StudyError

FORMAT_VERSION = 1


@dataclass(frozen=True)
class Pair:
    """A measured pair; `log_ratio` is positive when the setting is faster than the reference.

    `launch` counts the starts of the script over the whole study, `steps` the steps in its four
    blocks, `t_unix` is when it was finished. `by` names the tuner that measured it where several
    share a study, "" in a tuner's own log.
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
    by: str = ""


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
        """The pairs of a phase, of one setting if given, oldest first."""
        return [
            pair
            for pair in self.pairs
            if pair.phase == phase and (setting is None or pair.setting == setting)
        ]

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
            raise StudyError(f"{where}: version {version} of a pair is not known here")
        return msgspec.convert(fields, Pair)
    except msgspec.MsgspecError as error:
        raise StudyError(f"{where}: not a pair: {error}") from error
