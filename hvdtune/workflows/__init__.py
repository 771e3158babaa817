"""The commands as functions for Python programs, without terminal and options."""
