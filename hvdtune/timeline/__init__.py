"""Traces of distributed training: read, merge, measure, export. Needs no extension module.

`open_trace` (also called `load` and `read`) opens a trace of any format: a table of slices, whose
columns `model.slices` names, and the events of hvdtune's kinds among them. `merge` joins the files
of all ranks, `write_chrome` exports for chrome://tracing and Perfetto, `write_slices` to other
formats as well; `tensor_table`, `phase_table`, `step_table` and `summary` measure, `lateness` says
who announced last.

They are loaded when they are first used, since readers of ranks' files need no tables; for type
checkers they are in `__init__.pyi`.
"""

import importlib
from typing import Any, Final

__all__ = [
    "KINDS",
    "Trace",
    "lateness",
    "load",
    "merge",
    "open_trace",
    "phase_table",
    "read",
    "step_table",
    "summary",
    "tensor_table",
    "write_chrome",
    "write_slices",
]

_LAZY: Final = {
    "KINDS": "hvdtune.timeline.model.schema",
    "Trace": "hvdtune.timeline.model.trace",
    "lateness": "hvdtune.timeline.model.lateness",
    "merge": "hvdtune.timeline.reading.merge",
    "open_trace": "hvdtune.timeline.reading.opening",
    "phase_table": "hvdtune.timeline.analysis.phases",
    "step_table": "hvdtune.timeline.analysis.phases",
    "summary": "hvdtune.timeline.analysis.phases",
    "tensor_table": "hvdtune.timeline.analysis.metrics.tensors",
    "write_chrome": "hvdtune.timeline.writing.export",
    "write_slices": "hvdtune.timeline.writing.write_slices",
}
_SAME: Final = {"load": "open_trace", "read": "open_trace"}


def __getattr__(name: str) -> Any:
    name = _SAME.get(name, name)
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'hvdtune.timeline' has no attribute '{name}'")
