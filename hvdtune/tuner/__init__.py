"""Tunes a live training run and proves the result.

space       knob table -> what Optuna samples, and back
measure     steps -> blocks -> pairs, pure
statistics  pairs -> estimates and decisions, pure
plan        time -> how many pairs where, pure
live        drives the running job: launches, settings, blocks
bench       one measured and recorded pair
calibrate, search, race, verify    the phases, in this order
store       RUN/study.db and the reading side; pairs: RUN/pairs.jsonl
verdict     verification pairs -> verdict, pure;  floor: A/A pairs -> what a difference has to be
profile     profile.yaml;  report: report.md, verdict.json
fingerprint what a profile was measured on, and how far that is from here
exports     a setting for other programs;  autotune_log: what a log of Horovod's supports
controller  all of it together: `tune()`
compare     the verification alone, of two settings or of one with itself
"""
