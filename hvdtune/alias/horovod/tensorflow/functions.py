"""Variables and objects on all ranks."""

from hvdtune.tensorflow import *
