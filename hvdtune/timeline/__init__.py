"""Traces of distributed training: read, merge, measure, export. Needs no extension module.

`load` opens traces of any format as one table of slices, whose columns `model` names, and
`write_slices` exports it. `read` opens one as hvdtune records it, `merge` joins the files of all
ranks, `write_chrome` exports for chrome://tracing and Perfetto; `tensor_table`, `phase_table`,
`step_table` and `summary` measure, `lateness` says who announced last.
"""

from hvdtune.timeline.analysis.phases import phase_table, step_table, summary, tensor_table
from hvdtune.timeline.model.convert import trace_of
from hvdtune.timeline.model.lateness import lateness
from hvdtune.timeline.model.schema import KINDS, Trace
from hvdtune.timeline.model.slices import Model
from hvdtune.timeline.reading.load import load
from hvdtune.timeline.reading.merge import merge
from hvdtune.timeline.reading.read import read
from hvdtune.timeline.writing.export import write_chrome
from hvdtune.timeline.writing.write_slices import write_slices

__all__ = [
    "KINDS",
    "Model",
    "Trace",
    "lateness",
    "load",
    "merge",
    "phase_table",
    "read",
    "step_table",
    "summary",
    "tensor_table",
    "trace_of",
    "write_chrome",
    "write_slices",
]
