"""Tunes a live training run and proves the result.

space       knob table -> what Optuna samples, and back;  space_file: --space
same_plan   settings that lead to the same fusion plan, pure;  traces: the tensors they are told by
samplers    who proposes;  gp: a process that knows each trial's noise;  stopping: when to end, pure
objectives  what is made better, Pareto sets, pure
measure     steps -> blocks -> pairs, pure
contamination  blocks in which something else happened, pure;  host: what happens there
statistics  pairs -> estimates and decisions, pure
plan        time -> how many pairs where, pure
live        drives the running job: launches, settings, blocks
restart     the same for a command that is started anew for every block
adapters    what can be tuned so: knobs of other runtimes, pure
bench       one measured and recorded pair
calibrate, search, race, verify    the phases, in this order
pairs       RUN/pairs.jsonl, the truth; trials: what a trial is
store       the Optuna study, written;  reading: the same, read;  database: where it lies
share       several tuners on one study;  board: the tables through which they know of each other
timelines   what a trial looked like, kept as an artifact
studies     those that are there;  tables: for export;  removal;  fsck: what is wrong;  repair
verdict     verification pairs -> verdict, pure;  floor: A/A pairs -> what a difference has to be
profile     profile.yaml;  report: report.md, verdict.json
fingerprint what a profile was measured on, and how far that is from here
exports     a setting for other programs;  autotune_log: what a log of Horovod's supports
controller  all of it together: `tune()`
compare     the verification alone, of two settings or of one with itself
"""
