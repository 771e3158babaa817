"""Readers of trace files: one module per format, all of them giving a `Trace`."""
