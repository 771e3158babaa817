"""Tunes a live training run and proves the result.

space       knob table -> what Optuna samples, and back
measure     steps -> blocks -> pairs, pure
statistics  pairs -> estimates and decisions, pure
plan        time -> how many pairs where, pure
live        drives the running job: launches, settings, blocks
bench       one measured and recorded pair
calibrate, search, race, verify    the phases, in this order
pairs       RUN/pairs.jsonl, the truth; trials: what a trial is
store       the Optuna study, written;  reading: the same, read;  database: where it lies
share       several tuners on one study;  board: the tables through which they know of each other
timelines   what a trial looked like, kept as an artifact
studies     those that are there;  tables: for export;  removal;  fsck: what is wrong;  repair
verdict     verification pairs -> verdict, pure
profile     profile.yaml;  report: report.md, verdict.json
controller  all of it together: `tune()`
"""
