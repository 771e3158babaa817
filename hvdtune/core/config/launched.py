"""The variables that a rank was started with, and their changes since. Pure.

A rank has its launcher's environment and the variables that the launcher sets. The launcher records
both in one more variable. A launcher inside the rank uses this record to ignore the outer
launcher's variables, and the rank to find variables that the script set before `init`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hvdtune.errors import UsageError
from hvdtune.horovod import variables
from hvdtune.horovod.vocabulary import PLACE, VARIABLES

if TYPE_CHECKING:
    from typing_extensions import Self

NOTE: Final = "HVDTUNE_LAUNCHED"
# For a launcher in another environment: the facts of the interpreter that it starts ranks with.
TRAINING_PYTHON: Final = "HVDTUNE_TRAINING_PYTHON"
_OF_PLACE: Final = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")
_OF_JOB: Final = ("RENDEZVOUS", "KEY_FD", "KEY_FILE", "KEY", "NODE", "NODES", "WORKER")
# Set by a launcher for each of its ranks, never by a user.
OWN_PLACE: Final[frozenset[str]] = PLACE | {f"HVDTUNE_{name}" for name in _OF_PLACE + _OF_JOB}
# Set by horovodrun for its ranks, next to their place.
_OF_HOROVODRUN: Final = (
    "HOROVOD_CONTROLLER", "HOROVOD_CPU_OPERATIONS", "HOROVOD_ELASTIC", "HOROVOD_GLOO_IFACE",
)  # fmt: skip
# Set by `hvdtune run` as by torchrun, for scripts of torch.
TORCH_PLACE: Final = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
_INTERFACES: Final = ("HVDTUNE_INTERFACE", "HOROVOD_GLOO_IFACE")


@dataclass(frozen=True, eq=False)
class Launch:
    """The variables of Horovod, hvdtune and torch's place at the start of a rank.

    Attributes:
        values: all of them.
        before: those that the launcher set, with their values in the launcher's environment, None
            if unset.
    """

    values: Mapping[str, str]
    before: Mapping[str, str | None]

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Self | None:
        """Return the recorded launch, None without one. Raises UsageError for an invalid record."""
        if not environ.get(NOTE):
            return None
        try:
            return cls(**json.loads(environ[NOTE]))
        except (ValueError, TypeError):
            raise UsageError(f"{NOTE} is invalid. Only `hvdtune run` sets it: unset it") from None

    def note(self, environ: MutableMapping[str, str]) -> None:
        """Record it in the environment of a new rank."""
        environ[NOTE] = json.dumps(vars(self), separators=(",", ":"))

    def is_changed(self, environ: Mapping[str, str], name: str) -> bool:
        """Return True if the script has set or unset this variable since."""
        return environ.get(name) != self.values.get(name)


def note_launch(environ: MutableMapping[str, str], before: Mapping[str, str | None]) -> None:
    """Record the launch in the environment of a new rank.

    Args:
        before: as of `Launch`.
    """
    Launch(
        {name: environ[name] for name in environ if _is_noted(name)},
        {name: before[name] for name in before if _is_noted(name)},
    ).note(environ)


def place_variables(*numbers: int) -> dict[str, str]:
    """Return the variables of a rank's place, under hvdtune's names and Horovod's.

    Args:
        numbers: the rank, the size, the local rank and size, the cross rank and size.
    """
    place = dict(zip(_OF_PLACE, map(str, numbers), strict=True))
    return {f"{prefix}_{n}": place[n] for n in place for prefix in ("HVDTUNE", "HOROVOD")}


def give(environ: MutableMapping[str, str], name: str, value: str) -> None:
    """Set a variable of a new rank, and add it to the recorded launch, if any."""
    environ[name] = value
    if (launch := Launch.of(environ)) is not None:
        before = {name: launch.values.get(name), **launch.before}
        Launch({**launch.values, name: value}, before).note(environ)


def without_launch(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without the variables that the launcher of this process has set.

    Variables that the script has set since are kept. Without a launcher all are, except a place.
    """
    kept = dict(environ)
    launch = Launch.of(environ)
    if launch is not None:
        kept.pop(NOTE)
        for name, before in launch.before.items():
            if launch.is_changed(environ, name):
                continue
            kept.pop(name, None)
            if before is not None:
                kept[name] = before
    elif environ.get("HOROVOD_GLOO_RENDEZVOUS_ADDR"):
        for name in _OF_HOROVODRUN:
            kept.pop(name, None)
    kept.pop(TRAINING_PYTHON, None)
    return {name: value for name, value in kept.items() if name not in OWN_PLACE}


def settle(environ: Mapping[str, str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Settle which variables count: the launcher's, then the script's, then the environment's.

    Returns them, and one warning per variable that the script set too late to take effect.
    """
    settled = dict(environ)
    launch = Launch.of(environ)
    if launch is None:
        return settled, ()
    ignored: list[str] = []
    for own in dict.fromkeys(term.sets for term in VARIABLES if term.sets):
        names = (own, *(term.variable for term in variables.standing_for(own)))
        changed = [name for name in names if launch.is_changed(environ, name) and environ.get(name)]
        if own in launch.before:
            settled[own] = launch.values[own]
            why = f"this job was started with {own}={settled[own]}"
            other = [name for name in changed if environ[name] != settled[own]]
            ignored += [ignored_warning(environ, name, why) for name in other]
        elif changed and own not in changed:
            settled.pop(own, None)
    chosen = any(launch.is_changed(environ, name) for name in _INTERFACES)
    if chosen and "HVDTUNE_ADDRESS" in launch.before:
        settled.pop("HVDTUNE_ADDRESS", None)
    if launch.is_changed(environ, "HOROVOD_AUTOTUNE") and environ.get("HOROVOD_AUTOTUNE"):
        why = "tuning needs the launcher: use `hvdtune run --autotune`"
        ignored.append(ignored_warning(environ, "HOROVOD_AUTOTUNE", why))
    return settled, tuple(ignored)


def ignored_warning(environ: Mapping[str, str], name: str, why: str) -> str:
    """Return the warning about a variable that the script set too late to take effect."""
    return f"The script set {name}={environ[name]} too late to take effect: {why}"


def _is_noted(name: str) -> bool:
    ours = name.startswith(("HVDTUNE_", "HOROVOD_")) and name != NOTE
    return ours or name in TORCH_PLACE
