"""Parameters, optimizer states and objects on all ranks."""

from hvdtune.torch import *
