"""The values of Horovod's environment variables; what each does here says the vocabulary. Pure.

Horovod reads a text that is no number as 0, and `true` as false. Here such texts are refused; an
empty one counts as not set.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

from hvdtune.errors import UsageError
from hvdtune.horovod.vocabulary import PLACE, VARIABLES, Term


@functools.cache
def standing_for(variable: str) -> tuple[Term, ...]:
    """The variables of Horovod's for one of hvdtune's; the first that is set counts."""
    return tuple(term for term in VARIABLES if term.sets == variable)


def check(env: Mapping[str, str]) -> None:
    """Raises UsageError for the first variable whose value cannot be."""
    for term in VARIABLES:
        if term.refused and value_of(env, term):
            raise UsageError(f"{term.variable}={env[term.variable]}: {term.refused}")
        value_of(env, term)


def check_alone(env: Mapping[str, str], *, is_told: bool) -> None:
    """Check as `check` does, for a process that `hvdtune run` has not started.

    Args:
        is_told: another launcher tells its place, so that Horovod's names for it are the script's.
    """
    for term in VARIABLES:
        if term.alone and not (is_told and term.variable in PLACE) and value_of(env, term):
            raise UsageError(f"{term.variable}={env[term.variable]}: {term.alone}")


def launcher_values(env: Mapping[str, str]) -> dict[str, object]:
    """Reads what is asked of the launcher, by variable; only those that are set.

    Raises UsageError for a value that cannot be.
    """
    values = {
        term.variable: value_of(env, term)
        for term in VARIABLES
        if term.launcher and term.variable not in PLACE and env.get(term.variable)
    }
    return {name: value for name, value in values.items() if value is not None}


def value_of(env: Mapping[str, str], term: Term) -> object:
    """None where the variable is not set. Raises UsageError for a value that cannot be."""
    text = env.get(term.variable, "")
    if not text:
        return None
    try:
        return term.parse(text)
    except ValueError as error:
        raise UsageError(f"{term.variable}={text} {error}") from None
