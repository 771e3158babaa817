"""Separate the words of `hvdtune run` into its own options and the script's. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from hvdtune.errors import UsageError
from hvdtune.launcher.plan import is_script


def split_command(
    words: Sequence[str],
    options: Mapping[str, int],
    behind: Mapping[str, int] | None = None,
    abbreviated: Mapping[str, str] = MappingProxyType({}),
) -> tuple[list[str], list[str]]:
    """Return hvdtune's options with their values, and the command.

    Before the command every option is ours, known or not. After a script (`*.py`) those of `behind`
    are ours and the others the script's; after any other command word nothing is ours. `--` ends
    ours everywhere and is dropped. Raises UsageError when an option lacks its value.

    Args:
        words: the words after `hvdtune run`.
        options: every spelling of our options, with its number of values.
        behind: those of them that may stand behind a script; all by default.
        abbreviated: spellings that may be abbreviated before the command, with their meaning.
    """
    behind = options if behind is None else behind
    ours: list[str] = []
    rest = list(words)
    while rest and rest[0].startswith("-") and rest[0] not in ("-", "--"):
        rest[0] = _in_full(rest[0], options, abbreviated)
        ours += _take(rest, _known_words(rest[0], options) or 1)
    if not rest or rest[0] == "--" or not is_script(rest[0]):
        return ours, rest[1:] if rest[:1] == ["--"] else rest
    command = [rest.pop(0)]
    while rest and rest[0] != "--":
        count = _known_words(rest[0], behind)
        if count:
            ours += _take(rest, count)
        else:
            command.append(rest.pop(0))
    return ours, command + rest[1:]


def part_options(
    words: Sequence[str], options: Mapping[str, int], others: Mapping[str, int]
) -> tuple[list[str], list[str]]:
    """Split words without a command into those not of `others`, known or not, and `others`.

    Raises UsageError when an option lacks its value.
    """
    ours: list[str] = []
    theirs: list[str] = []
    rest = list(words)
    while rest:
        if count := _known_words(rest[0], options):
            ours += _take(rest, count)
        elif count := _known_words(rest[0], others):
            theirs += _take(rest, count)
        else:
            ours += _take(rest, 1)
    return ours, theirs


def _in_full(word: str, options: Mapping[str, int], abbreviated: Mapping[str, str]) -> str:
    """Complete an abbreviated option. Raises UsageError if several meanings begin like it."""
    name, equals, value = word.partition("=")
    if name in options or not name.startswith("--"):
        return word
    found = sorted(spelling for spelling in abbreviated if spelling.startswith(name))
    if len({abbreviated[spelling] for spelling in found}) > 1:
        raise UsageError(f"option {name} is ambiguous: it may mean {', '.join(found)}")
    return found[0] + equals + value if found else word


def _take(rest: list[str], count: int) -> list[str]:
    if len(rest) < count:
        raise UsageError(f"option {rest[0]} needs a value")
    taken, rest[:] = rest[:count], rest[count:]
    return taken


def _known_words(word: str, options: Mapping[str, int]) -> int:
    """Return the number of words of the option at `word`; 0 if it is not ours."""
    if word in options:
        return 1 + options[word]
    name, equals, _ = word.partition("=")
    return 1 if equals and options.get(name) else 0
