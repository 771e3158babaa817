"""Imported last by a server that ranks are forked from: what their test modules would import."""

import gc
import importlib

for name in ("hvdtune.timeline", "hypothesis", "pytest", "tests.contract.calls"):
    importlib.import_module(name)
# What is here stays. A rank that looked for garbage in it would write to, and so copy, all of it.
gc.collect()
gc.freeze()
