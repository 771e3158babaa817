"""Traces of distributed training: read, merge, measure, export. Needs no extension module.

`read` opens a trace, `merge` joins the files of all ranks, `write_chrome` exports for
chrome://tracing and Perfetto; `tensor_table`, `phase_table`, `step_table` and `summary` measure,
`lateness` says who announced last.
"""

from hvdtune.timeline.export import write_chrome
from hvdtune.timeline.lateness import lateness
from hvdtune.timeline.merge import merge
from hvdtune.timeline.phases import phase_table, step_table, summary, tensor_table
from hvdtune.timeline.read import read
from hvdtune.timeline.schema import KINDS, Trace

__all__ = [
    "KINDS",
    "Trace",
    "lateness",
    "merge",
    "phase_table",
    "read",
    "step_table",
    "summary",
    "tensor_table",
    "write_chrome",
]
