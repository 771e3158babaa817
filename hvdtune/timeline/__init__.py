"""Traces of distributed training: read, merge, measure, export. Needs no extension module.

`open_trace` (also called `load` and `read`) opens a trace of any format: a table of slices, whose
columns `model.slices` names, and the events of hvdtune's kinds among them. `merge` joins the files
of all ranks, `write_chrome` exports for chrome://tracing and Perfetto, `write_slices` to other
formats as well; `tensor_table`, `phase_table`, `step_table` and `summary` measure, `lateness` says
who announced last.
"""

from hvdtune.timeline.analysis.metrics.tensors import tensor_table
from hvdtune.timeline.analysis.phases import phase_table, step_table, summary
from hvdtune.timeline.model.lateness import lateness
from hvdtune.timeline.model.schema import KINDS
from hvdtune.timeline.model.trace import Trace
from hvdtune.timeline.reading.merge import merge
from hvdtune.timeline.reading.opening import open_trace
from hvdtune.timeline.writing.export import write_chrome
from hvdtune.timeline.writing.write_slices import write_slices

load = read = open_trace

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
