"""Checks the hosts of a job, and every way between two of them, before the job is started."""
