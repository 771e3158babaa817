"""Parts of Horovod that this version of hvdtune does not have."""

from typing import NoReturn

from hvdtune import __version__


def refuse(name: str) -> NoReturn:
    """Raises the ImportError of a module that comes in a later version."""
    raise ImportError(
        f"hvdtune {__version__} has no {name}: it comes in a later version",
        name=name,
    )
