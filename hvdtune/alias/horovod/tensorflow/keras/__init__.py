"""hvdtune.tensorflow.keras by Horovod's name: the same objects."""

import importlib

from hvdtune.tensorflow.keras import *

# Last, because hvdtune.tensorflow.keras has modules of the same names.
for _name in ("callbacks", "elastic"):
    importlib.import_module(f".{_name}", __name__)
