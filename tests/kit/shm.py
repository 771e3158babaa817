"""Shared memory that has a name, the files of /dev/shm, as far as this process's tests make it.

Another run of the tests on the same machine has files there as well.
"""

import contextlib
import multiprocessing
import os
from collections.abc import Iterator
from pathlib import Path

import psutil

FOLDER = Path("/dev/shm")
_OF_A_RUN = "HVDTUNE_TEST_PROCESS"
_SEMAPHORE = "sem."


def mark_own() -> None:
    """From here on, tells apart what this process starts from what others start, and the named
    semaphores of multiprocessing, here and in its children, from theirs."""
    os.environ[_OF_A_RUN] = str(os.getpid())
    # Children copy it; there is no public way to say whose a semaphore is.
    multiprocessing.current_process()._config["semprefix"] = f"/mp-{os.getpid()}"  # type: ignore[attr-defined]


def named() -> set[str]:
    """The names of all segments but for semaphores that are another's."""
    own = f"-{os.getpid()}-"  # of multiprocessing, or of joblib, which names them anew
    # Folders there are some other program's: a segment is a file.
    names = {path.name for path in FOLDER.iterdir() if path.is_file()}
    return {name for name in names if own in name or not name.startswith(_SEMAPHORE)}


def abandoned(names: set[str]) -> set[str]:
    """Return the names of segments that no process maps but for orphans of these tests.

    A segment that only an orphan maps counts as left behind, as the process is.
    """
    left = {}
    for name in names & named():
        with contextlib.suppress(FileNotFoundError):  # another program's, which has ended
            left[(FOLDER / name).stat().st_ino] = name
    for process in _in_use() if left else ():
        with contextlib.suppress(OSError):  # it has ended
            for line in Path(f"/proc/{process.pid}/maps").read_text().splitlines():
                # By its number: who has made a semaphore knows it by another name.
                _, _, _, _, inode, *path = line.split(maxsplit=5)
                if path and path[0].startswith(f"{FOLDER}/"):
                    left.pop(int(inode), None)
    return {*left.values()}


def _in_use() -> Iterator[psutil.Process]:
    """The processes of the machine without the orphans of these tests."""
    own = psutil.Process()
    beside = {own.pid, *(child.pid for child in own.children(recursive=True))}
    mark = f"{_OF_A_RUN}={own.pid}".encode()
    for process in psutil.process_iter():
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            said = Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
            if process.pid in beside or mark not in said:
                yield process
