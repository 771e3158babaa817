"""Batch scripts that start a job under a scheduler: written by `script.py`, sent by `send.py`."""
