from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

# Phase, name, category, pid, tid, id, at_ns, lasted_ns, numbers, ends of args, args.
Bytes: TypeAlias = NDArray[np.uint8]
Codes: TypeAlias = NDArray[np.int32]
Ints: TypeAlias = NDArray[np.int64]
Columns: TypeAlias = tuple[
    Bytes, Codes, Codes, Codes, Codes, Codes, Ints, Ints, tuple[Ints, ...], Codes, Bytes
]

class Scanner:
    def run(self, data: bytes, at: int) -> tuple[int, Columns, Columns]: ...
    def code(self, text: str) -> int: ...
    def texts(self, start: int) -> list[str]: ...
