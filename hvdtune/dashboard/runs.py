"""The runs that a dashboard shows."""

from collections.abc import Iterator, Sequence

from hvdtune.dashboard.data import RunView
from hvdtune.dashboard.live import Live


class Runs:
    """Those that were opened, by number; a job under way, if one is attached, is the first."""

    def __init__(self, opened: Sequence[RunView], live: Live | None = None) -> None:
        self._opened = list(opened)
        self.live = live

    def __len__(self) -> int:
        return len(self._opened) + (self.live is not None)

    def __getitem__(self, number: int) -> RunView:
        """As it is now; IndexError where there is none."""
        if not 0 <= number < len(self):
            raise IndexError(number)
        if self.live is None:
            return self._opened[number]
        return self._opened[number - 1] if number else self.live.now.run

    def __iter__(self) -> Iterator[RunView]:
        return (self[number] for number in range(len(self)))
