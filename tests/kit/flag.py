"""An event between processes that know the same path: a semaphore would outlive a killed one."""

import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Flag:
    path: Path

    def set(self) -> None:
        self.path.touch()

    def wait(self) -> None:
        while not self.path.exists():
            time.sleep(0.01)
