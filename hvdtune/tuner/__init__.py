"""Tunes a live training run and proves the result.

space/     what can be tuned and what is made better: the search space, targets, objectives, options
stats/     pairs to estimates and decisions, pure
measure/   a running job: steps to blocks to pairs, by live changes or by restarts
storage/   the log of pairs and the Optuna study: written, read, shared, checked, repaired
search/    who proposes, how long to search, the phases that follow one another
results/   what comes out: profile, report, exports, tables
study      what a study is given, and the files it leaves
controller all of it together: `tune()`
comparison the verification alone, of two settings or of one with itself
drift_monitor  notices after the verdict that the training has changed
process/   the tuner as a process of its own, and its supervisor

Imports go up this list only: a contract in pyproject.toml holds it.
"""
