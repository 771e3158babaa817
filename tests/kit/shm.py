"""Shared memory that has a name: the files of /dev/shm."""

import contextlib
import os
from pathlib import Path

import psutil

FOLDER = Path("/dev/shm")


def named() -> set[str]:
    # Folders there are some other program's: a segment is a file.
    return {path.name for path in FOLDER.iterdir() if path.is_file()}


def abandoned(names: set[str]) -> set[str]:
    """Return the names of segments that no process of these tests or of parallel ones maps.

    A segment that only an orphaned process maps counts as left behind, as the process is.
    """
    left = names & named()
    beside = psutil.Process(os.getppid()).children(recursive=True) if left else []
    for process in beside:
        with contextlib.suppress(OSError):  # it has ended
            text = Path(f"/proc/{process.pid}/maps").read_text()
            left = {name for name in left if str(FOLDER / name) not in text}
    return left
