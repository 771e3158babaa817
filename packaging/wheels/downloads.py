"""What wheels of PyPI are downloaded for: headers to compile with, libraries to link against."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

_CONSTRAINTS: Final = Path(__file__).parents[2] / "constraints.txt"


def unpack(
    requirement: str, folder: Path, place: Callable[[str], str | None], options: Sequence[str] = ()
) -> Path:
    """Keep some files of a wheel in `folder`, unless they are there.

    Args:
        place: where a file of the wheel is kept, relative to `folder`; None where it is not.
        options: for `pip download`.
    """
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as name:
        made = Path(name)
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(made)]
        subprocess.run([*command, "--only-binary=:all:", *options, requirement], check=True)
        (wheel,) = made.glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            for file in archive.namelist():
                kept = None if file.endswith("/") else place(file)
                if kept is not None:
                    target = made / "kept" / kept
                    target.parent.mkdir(parents=True, exist_ok=True)
                    with archive.open(file) as source, target.open("wb") as copy:
                        shutil.copyfileobj(source, copy)
        (made / "kept").rename(folder)
    return folder


def pinned(package: str) -> str:
    """The version in constraints.txt."""
    for line in _CONSTRAINTS.read_text().splitlines():
        name, _, version = line.partition("==")
        if name == package:
            return version
    raise SystemExit(f"constraints.txt names no version of {package}")
