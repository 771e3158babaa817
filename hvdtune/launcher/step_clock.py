"""Step times of commands that know nothing of hvdtune: a hook in their Python processes reports."""

from __future__ import annotations

import json
import shutil
import struct
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

_HOOK: Final = Path(__file__).parent / "hook" / "sitecustomize.py"
_STAMP: Final = struct.Struct("<q")


class StepClock:
    """The folder through which one launch's processes and this one talk; used from one thread.

    They find the hook there (`hook/sitecustomize.py`) and leave a file of time stamps each. All
    must be this machine's processes.

    Args:
        setting: what DistributedDataParallel is given instead of its script's arguments.
    """

    def __init__(self, setting: Mapping[str, Any] | None = None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="hvdtune-"))
        shutil.copyfile(_HOOK, self.folder / _HOOK.name)
        self._setting = dict(setting or {})
        (self.folder / "setting.json").write_text(json.dumps(self._setting))
        self._ranks: list[Path] = []
        self._taken = 0

    def environ(self, environ: Mapping[str, str]) -> dict[str, str]:
        """The variables that make a Python process with this environment load the hook."""
        return {"PYTHONPATH": ":".join(filter(None, [str(self.folder), environ.get("PYTHONPATH")]))}

    def steps(self) -> list[tuple[int, ...]]:
        """The steps that all processes have ended since the last call, in nanoseconds by process.

        The processes are those that had stepped when one had ended its third step: the exchange
        of gradients lets none come so far alone.
        """
        if not self._ranks:
            files = sorted(self.folder.glob("*.steps"), key=lambda file: int(file.stem))
            if all(len(_stamps(file)) < 3 for file in files):
                return []
            self._ranks = files
        ends = [_stamps(file) for file in self._ranks]
        known = min(map(len, ends)) - 1
        new = [
            tuple(stamps[step + 1] - stamps[step] for stamps in ends)
            for step in range(self._taken, known)
        ]
        self._taken = max(known, self._taken)
        return new

    def ddp_arguments(self) -> list[dict[str, Any]]:
        """The arguments of every DistributedDataParallel that was made, by process."""
        files = sorted(self.folder.glob("*.ddp"), key=lambda file: int(file.stem))
        whole = [line for file in files for line in file.read_text().splitlines(keepends=True)]
        return [json.loads(line) for line in whole if line.endswith("\n")]

    def ddp_fault(self) -> str:
        """Says what is wrong with a DistributedDataParallel that was made; "" for nothing.

        Its arguments go through names that a version of torch may change.
        """
        for made in self.ddp_arguments():
            for name, wanted in self._setting.items():
                if abs(made[name] - wanted) > 1e-3 * wanted:
                    return (
                        f"DistributedDataParallel was made with {name}={made[name]}, not {wanted}"
                    )
        return ""

    def close(self) -> None:
        """Removes the folder."""
        shutil.rmtree(self.folder, ignore_errors=True)


def _stamps(file: Path) -> list[int]:
    data = file.read_bytes()
    return [stamp for (stamp,) in _STAMP.iter_unpack(data[: len(data) // 8 * 8])]
