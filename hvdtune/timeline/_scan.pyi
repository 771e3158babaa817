from collections.abc import Sequence
from typing import Any, TypeAlias

from numpy.typing import NDArray

Columns: TypeAlias = Sequence[NDArray[Any]]

class Scanner:
    def run(self, data: bytes, at: int) -> tuple[int, Columns, Columns]: ...
    def code(self, text: str) -> int: ...
    def texts(self, start: int) -> list[str]: ...
