"""Tunes a live training run and proves the result.

space/     what can be tuned and what is made better: the search space, targets, objectives, options
stats/     pairs to estimates and decisions, pure
measure/   a running job: steps to blocks to pairs, by live changes or by restarts
storage/   the log of pairs and the Optuna study: written, read, shared, checked, repaired
search/    who proposes, how long to search, the phases that follow one another
results/   what comes out: profile, report, exports, tables
process/   the tuner as a process of its own, and who supervises it
controller all of it together: `tune()`
comparison the verification alone, of two settings or of one with itself
"""
