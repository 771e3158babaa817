"""Files as a whole: the text of one that a user names, and one that is never seen half written."""

import re
from pathlib import Path
from typing import Final

import msgspec

from hvdtune import yaml_text
from hvdtune.errors import UsageError
from hvdtune.own_files import replacement

_WRONG_TYPE: Final = re.compile(r"Expected `([^`]+)`, got `(\w+)`(?: - at `\$\.?([^`]*)`)?")
_MISSING: Final = re.compile(r"Object missing required field `(\w+)`(?: - at `\$\.?([^`]*)`)?")
_TYPES: Final = {
    "int": "a whole number",
    "float": "a number",
    "str": "a text",
    "bool": "true or false",
    "object": "a mapping",
    "array": "a list",
    "null": "nothing",
}


def read_text(path: Path) -> str:
    """The text of a file that a user names. Raises UsageError."""
    try:
        return path.read_text(encoding="utf-8-sig")  # some editors begin a file with a mark
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not a text file") from error


def yaml_error(where: object, error: yaml_text.YAMLError) -> UsageError:
    """The error for a text that is not YAML: one line, with the number of the wrong line."""
    mark = getattr(error, "problem_mark", None)
    line = f":{mark.line + 1}" if mark is not None else ""
    problem = getattr(error, "problem", None) or " ".join(str(error).split())
    return UsageError(f"{where}{line}: {problem}")


def field_fault(error: msgspec.ValidationError) -> str:
    """Says in a sentence what is wrong with a field of a document."""
    text = str(error)
    if missing := _MISSING.fullmatch(text):
        return f"{missing[2] or 'the document'} has no {missing[1]}"
    if wrong := _WRONG_TYPE.fullmatch(text):
        wanted = " or ".join(_TYPES.get(kind, kind) for kind in wrong[1].split(" | "))
        return (
            f"{wrong[3] or 'the document'} must be {wanted}, not {_TYPES.get(wrong[2], wrong[2])}"
        )
    return text


def replace_file(path: Path, text: str) -> None:
    """Write through a temporary file beside `path`, so that a reader never sees half of it."""
    try:
        with replacement(path) as part:
            part.write_text(text, encoding="utf-8")
    except OSError as error:
        # Nobody knows the name of the temporary file.
        raise OSError(error.errno, error.strerror, str(path)) from error
