"""hvdtune.keras by Horovod's name: the same objects."""

import importlib

import keras

from hvdtune.keras import *
from hvdtune.keras import keras2_compat

keras2_compat.keep(keras)

# Last, because hvdtune.keras has modules of the same names.
for _name in ("callbacks", "elastic"):
    importlib.import_module(f".{_name}", __name__)
