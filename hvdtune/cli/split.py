"""Which words of `hvdtune run` are hvdtune's own and which belong to the script. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hvdtune.launch.plan import is_script


def split_command(words: Sequence[str], options: Mapping[str, bool]) -> tuple[list[str], list[str]]:
    """The words that are hvdtune's options with their values, and the command.

    Before the command every option is ours, known or not. After a script (`*.py`) the known ones
    are ours and the others the script's; after any other command word nothing is ours. `--` ends
    ours everywhere and is dropped.

    Args:
        words: what follows `hvdtune run`.
        options: every spelling of our options, and whether it takes a value.
    """
    ours: list[str] = []
    rest = list(words)
    while rest and rest[0].startswith("-") and rest[0] not in ("-", "--"):
        count = _known_words(rest[0], options) or 1
        ours, rest = ours + rest[:count], rest[count:]
    if not rest or rest[0] == "--" or not is_script(rest[0]):
        return ours, rest[1:] if rest[:1] == ["--"] else rest
    command = [rest.pop(0)]
    while rest and rest[0] != "--":
        count = _known_words(rest[0], options)
        if count:
            ours, rest = ours + rest[:count], rest[count:]
        else:
            command.append(rest.pop(0))
    return ours, command + rest[1:]


def _known_words(word: str, options: Mapping[str, bool]) -> int:
    """How many words the option at `word` spans; 0 if it is none of ours."""
    if word in options:
        return 2 if options[word] else 1
    name, equals, _ = word.partition("=")
    return 1 if equals and options.get(name) else 0
