"""The runs that a dashboard shows."""

from collections.abc import Iterator, Sequence

from hvdtune.dashboard.data import RunView
from hvdtune.dashboard.live import Live


class Runs:
    """The runs that were opened, by number; if a job is attached, it is the first."""

    def __init__(self, opened: Sequence[RunView], live: Live | None = None) -> None:
        self._opened = list(opened)
        self.live = live

    def __len__(self) -> int:
        return len(self._opened) + (self.live is not None)

    def __getitem__(self, number: int) -> RunView:
        """Return the run as it is now; raises IndexError if there is none."""
        if not 0 <= number < len(self):
            raise IndexError(number)
        if self.live is None:
            return self._opened[number]
        return self._opened[number - 1] if number else self.live.now.run

    def __iter__(self) -> Iterator[RunView]:
        return (self[number] for number in range(len(self)))
