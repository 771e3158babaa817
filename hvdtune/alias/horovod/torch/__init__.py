"""hvdtune.torch by Horovod's name: the same objects."""

import importlib

from hvdtune.torch import *

# Last, because hvdtune.torch may have a module of the same name with other modules in it.
for _name in (
    "compression",
    "elastic",
    "functions",
    "mpi_ops",
    "optimizer",
    "sync_batch_norm",
):
    importlib.import_module(f".{_name}", __name__)
