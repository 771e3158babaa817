"""The command line. Its modules are imported only by the commands that need them."""

from hvdtune.cli.app import main

__all__ = ["main"]
