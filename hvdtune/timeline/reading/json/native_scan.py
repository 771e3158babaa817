"""The scanner of `csrc/scan/`, where it is built."""

import pyarrow as pa

from hvdtune.timeline import _scan
from hvdtune.timeline.reading.json.batch import EventBatch


class NativeScanner:
    """A scanner in C++; see `batch.EventScanner`."""

    def __init__(self) -> None:
        self._scanner = _scan.Scanner()
        self._texts: list[str] = []

    def code(self, text: str) -> int:
        return self._scanner.code(text)

    def texts(self) -> list[str]:
        self._texts += self._scanner.texts(len(self._texts))
        return self._texts

    def run(self, data: bytes, at: int) -> tuple[list[EventBatch], int]:
        stop, *parts = self._scanner.run(data, at)
        return [_batch(columns) for columns in parts if len(columns[0])], stop


def _batch(columns: "_scan.Columns") -> EventBatch:
    phase, name, category, pid, tid, ident, at_ns, lasted_ns, numbers, args_ends, args = columns
    buffers = pa.py_buffer(args_ends), pa.py_buffer(args)
    texts = pa.StringArray.from_buffers(len(phase), *buffers)
    return EventBatch(phase, name, category, pid, tid, ident, at_ns, lasted_ns, numbers, texts)
