"""The variables that a rank was started with: who has set them, and what has changed since. Pure.

A rank has its launcher's environment and on top what the launcher sets for it. The launcher notes
both in one more variable, so that they can be told apart later: by a launcher that runs inside the
rank, to which they are no wishes of its user, and by the rank, whose script may have set variables
of its own before `init`.
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
# What a launcher of another environment is told of the interpreter that it starts ranks with.
TRAINING_PYTHON: Final = "HVDTUNE_TRAINING_PYTHON"
# What a launcher tells each of its ranks; never a wish of a user's.
OWN_PLACE: Final[frozenset[str]] = PLACE | {
    f"HVDTUNE_{name}"
    for name in (
        "RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE", "RENDEZVOUS",
        "KEY_FD", "KEY_FILE", "KEY", "NODE", "NODES", "WORKER",
    )
}  # fmt: skip
_OF_PLACE: Final = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")
# What horovodrun sets for its ranks beside their place.
_OF_HOROVODRUN: Final = (
    "HOROVOD_CONTROLLER", "HOROVOD_CPU_OPERATIONS", "HOROVOD_ELASTIC", "HOROVOD_GLOO_IFACE",
)  # fmt: skip
# What `hvdtune run` sets for its ranks as torchrun does: scripts of torch read their place there.
TORCH_PLACE: Final = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
_INTERFACES: Final = ("HVDTUNE_INTERFACE", "HOROVOD_GLOO_IFACE")


@dataclass(frozen=True, eq=False)
class Launch:
    """What a rank was started with: Horovod's variables, hvdtune's and those of torch's place.

    `before` has those that the launcher has set itself, with what the launcher's own environment
    says, None for nothing.
    """

    values: Mapping[str, str]
    before: Mapping[str, str | None]

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Self | None:
        """The launch that is noted, None for none. Raises UsageError for what is no note."""
        if not environ.get(NOTE):
            return None
        try:
            return cls(**json.loads(environ[NOTE]))
        except (ValueError, TypeError):
            raise UsageError(f"{NOTE} is set by `hvdtune run` only: unset it") from None

    def note(self, environ: MutableMapping[str, str]) -> None:
        """Notes it in the environment of a rank-to-be."""
        environ[NOTE] = json.dumps(vars(self), separators=(",", ":"))

    def is_changed(self, environ: Mapping[str, str], name: str) -> bool:
        """Whether the script has set this variable since, or unset it."""
        return environ.get(name) != self.values.get(name)


def note_launch(environ: MutableMapping[str, str], before: Mapping[str, str | None]) -> None:
    """Notes in the environment of a rank-to-be what it starts with.

    Args:
        before: the variables that the launcher sets, with what they were, None for nothing.
    """
    Launch(
        {name: environ[name] for name in environ if _is_noted(name)},
        {name: before[name] for name in before if _is_noted(name)},
    ).note(environ)


def place_variables(*numbers: int) -> dict[str, str]:
    """The variables of a rank's place, under hvdtune's names and Horovod's.

    Args:
        numbers: the rank, the size, the local rank and size, the cross rank and size.
    """
    place = dict(zip(_OF_PLACE, map(str, numbers), strict=True))
    return {f"{prefix}_{n}": place[n] for n in place for prefix in ("HVDTUNE", "HOROVOD")}


def give(environ: MutableMapping[str, str], name: str, value: str) -> None:
    """Sets a variable of a rank-to-be, and adds it to the launch if that is noted already."""
    environ[name] = value
    if (launch := Launch.of(environ)) is not None:
        before = {name: launch.values.get(name), **launch.before}
        Launch({**launch.values, name: value}, before).note(environ)


def without_launch(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without what the launcher of this process, if there is one, has set for it.

    What a script has set since is kept. So is everything where no launcher is, but for a place.
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
    """Settles which variables count: the launcher's, then the script's, then the environment's.

    Returns them, and a sentence about each variable that the script has set in vain.
    """
    settled = dict(environ)
    launch = Launch.of(environ)
    if launch is None:
        return settled, ()
    vain: list[str] = []
    for own in dict.fromkeys(term.sets for term in VARIABLES if term.sets):
        names = (own, *(term.variable for term in variables.standing_for(own)))
        changed = [name for name in names if launch.is_changed(environ, name) and environ.get(name)]
        if own in launch.before:
            settled[own] = launch.values[own]
            why = f"this job was started with {own}={settled[own]}"
            other = [name for name in changed if environ[name] != settled[own]]
            vain += [in_vain(environ, name, why) for name in other]
        elif changed and own not in changed:
            settled.pop(own, None)
    chosen = any(launch.is_changed(environ, name) for name in _INTERFACES)
    if chosen and "HVDTUNE_ADDRESS" in launch.before:
        settled.pop("HVDTUNE_ADDRESS", None)
    if launch.is_changed(environ, "HOROVOD_AUTOTUNE") and environ.get("HOROVOD_AUTOTUNE"):
        why = "it is the launcher that tunes, with `hvdtune run --autotune`"
        vain.append(in_vain(environ, "HOROVOD_AUTOTUNE", why))
    return settled, tuple(vain)


def in_vain(environ: Mapping[str, str], name: str, why: str) -> str:
    """The sentence about a variable that the script has set in vain."""
    return f"{name}={environ[name]}, as the script has set it, changes nothing: {why}"


def _is_noted(name: str) -> bool:
    ours = name.startswith(("HVDTUNE_", "HOROVOD_")) and name != NOTE
    return ours or name in TORCH_PLACE
