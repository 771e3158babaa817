"""Where the ranks of a launch leave their raw traces."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

# The raw traces of a launch's ranks, rank 0's first.
Traces = Callable[[int], Sequence[Path]]


@dataclass(frozen=True)
class RawTraces:
    """The raw traces in a run folder: `traces(launch)` are those of its ranks, rank 0's first."""

    run_dir: Path
    ranks: int

    def __call__(self, launch: int) -> list[Path]:
        folder = launch_folder(self.run_dir, launch)
        return [folder / f"rank-{rank}.hvt" for rank in range(self.ranks)]


def launch_folder(run_dir: Path, launch: int) -> Path:
    """The folder of a launch's raw traces."""
    return run_dir / "ranks" / f"launch-{launch}"
