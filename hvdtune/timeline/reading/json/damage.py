"""What became of the events of one file, and what was wrong with it."""

from collections import Counter
from typing import NamedTuple

from hvdtune.errors import TraceFormatError

# A file of nothing but damage must not fill the terminal.
MAX_TOLD = 20


class NoTraceError(TraceFormatError):
    """What was read is sound, or may be, and is something else than a trace."""


class Reason(NamedTuple):
    """What is said of events after their number."""

    one: str
    several: str

    def of(self, count: int) -> str:
        """The one that goes with a number."""
        return self.one if count == 1 else self.several


BACKWARD = Reason("slice ends before it begins", "slices end before they begin")


class DamageReport:
    """Counts events by phase letter and collects problems.

    Attributes:
        packing_damaged: what the text is packed in is damaged or cut off.
        packed_bytes: bytes of the packed file that were read; 0 where it is not packed.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.shown: Counter[str] = Counter()
        self.reported: Counter[str] = Counter()
        self.first_offset = -1
        self.packing_damaged = False
        self.packed_bytes = 0
        self._told: list[str] = []
        self._untold = 0
        self._reasons: dict[Reason, tuple[int, str]] = {}

    def problem(self, text: str, offset: int = -1) -> None:
        """Something is wrong; `text` says where."""
        if self.first_offset < 0:
            self.first_offset = offset
        if len(self._told) < MAX_TOLD:
            self._told.append(text)
        else:
            self._untold += 1

    def packing_problem(self, text: str, offset: int) -> None:
        """Something is wrong with what the text is packed in."""
        self.packing_damaged = True
        self.problem(text, offset)

    def left_out(self, phase: str, reason: Reason, count: int = 1, where: str = "") -> None:
        """`count` events of a phase are not shown; `where` is said of the first of a reason."""
        if count:
            self.reported[phase] += count
            so_far, first = self._reasons.get(reason, (0, where))
            self._reasons[reason] = so_far + count, first

    def note(self, reason: Reason, count: int, where: str = "") -> None:
        """`count` events are shown, though something about them is odd."""
        if count:
            so_far, first = self._reasons.get(reason, (0, where))
            self._reasons[reason] = so_far + count, first

    def counts(self) -> dict[str, dict[str, int]]:
        """By phase letter: read, shown, reported."""
        return {
            phase: {
                "read": self.shown[phase] + self.reported[phase],
                "shown": self.shown[phase],
                "reported": self.reported[phase],
            }
            for phase in sorted({*self.shown, *self.reported})
        }

    def warnings(self) -> list[str]:
        """One sentence each."""
        told = [f"{self.path}: {text}" for text in self._told]
        if self._untold:
            told.append(f"{self.path}: {self._untold} more places are damaged")
        for reason, (count, where) in self._reasons.items():
            first = f", the first {where}" if where else ""
            told.append(f"{self.path}: {count} {reason.of(count)}{first}")
        return told
