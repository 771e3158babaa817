"""Data-parallel training with a tuning workbench. `hvdtune.torch` is the Horovod-like API."""

__version__ = "0.1.0"
