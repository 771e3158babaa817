"""Starts the ranks of a job on this machine, watches them and leaves nothing of them behind."""
