"""The key of a job, from a descriptor, a file or a variable, never from an argument.

All users of a host can read arguments.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from hvdtune import parse
from hvdtune.errors import UsageError
from hvdtune.plural import counted

KEY_BYTES: Final = 32
# One byte more than a key in digits with its line end (2 bytes at most).
_MOST_BYTES: Final = 2 * KEY_BYTES + 3
_MAKE: Final = f"openssl rand -hex {KEY_BYTES}"
_MAKE_FILE: Final = f"`(umask 077; {_MAKE} > FILE)`"


def launched_key(env: Mapping[str, str]) -> bytes:
    """Return the key from the launcher's descriptor or file.

    Raises UsageError if it is missing or readable by other users.
    """
    if env.get("HVDTUNE_KEY_FD"):
        return _of_descriptor(env["HVDTUNE_KEY_FD"])
    if env.get("HVDTUNE_KEY_FILE"):
        return _of_file(env["HVDTUNE_KEY_FILE"])
    raise UsageError(
        "HVDTUNE_RENDEZVOUS is set, but HVDTUNE_KEY_FD is not. Start the ranks with `hvdtune run`"
    )


def users_key(env: Mapping[str, str]) -> bytes:
    """Return the user's key for a job without our launcher, b"" for none.

    Raises UsageError for a key that is invalid or readable by other users.
    """
    if env.get("HVDTUNE_KEY_FILE"):
        return _of_file(env["HVDTUNE_KEY_FILE"])
    text = env.get("HVDTUNE_KEY", "")
    if not text:
        return b""
    try:
        key = bytes.fromhex(text)
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise UsageError(
            f"HVDTUNE_KEY is not {2 * KEY_BYTES} hexadecimal digits. Make a key with `{_MAKE}`"
        )
    return key


def _of_descriptor(text: str) -> bytes:
    source = f"HVDTUNE_KEY_FD={text}"
    try:
        fd = parse.whole(text)
    except ValueError as error:
        raise UsageError(f"{source} {error}") from None
    try:
        key = os.pread(fd, KEY_BYTES + 1, 0)
        # Programs that the script starts must not get the key.
        os.set_inheritable(fd, False)
    except OSError:
        raise UsageError(
            f"{source} is closed. This process is a child of a rank, or a wrapper between "
            "`hvdtune run` and it closed inherited file descriptors"
        ) from None
    return _checked(key, source, "Unset it and start the ranks with `hvdtune run`")


def _of_file(path: str) -> bytes:
    """Return the key in a file: 32 bytes or 64 hexadecimal digits."""
    source = f"HVDTUNE_KEY_FILE={path}"
    try:
        with Path(path).expanduser().open("rb") as file:
            facts = os.fstat(file.fileno())
            if facts.st_mode & 0o077:
                raise UsageError(
                    f"{source} is readable by other users. Its mode must be 0600. If another user "
                    f"may have read the key, make a new one: {_MAKE_FILE}"
                )
            if facts.st_uid not in (os.geteuid(), 0):
                raise UsageError(
                    f"{source} belongs to another user. Make a key of your own: {_MAKE_FILE}"
                )
            content = file.read(_MOST_BYTES)
    except FileNotFoundError:
        raise UsageError(
            f"{source} does not exist. Make a key in a file that all hosts can read: {_MAKE_FILE}"
        ) from None
    except OSError as error:
        raise UsageError(
            f"{source} cannot be read ({error.strerror}). Make a key in a file that you can read "
            f"on all hosts: {_MAKE_FILE}"
        ) from None
    if len(content.strip()) == 2 * KEY_BYTES:
        with contextlib.suppress(ValueError):  # else `_checked` refuses it
            content = bytes.fromhex(content.decode("ascii"))
    return _checked(content, source, f"Make one: {_MAKE_FILE}")


def _checked(key: bytes, source: str, advice: str) -> bytes:
    if len(key) != KEY_BYTES:
        raise UsageError(
            f"{source} contains {_length(key)}, but a key has {KEY_BYTES} bytes or "
            f"{2 * KEY_BYTES} hexadecimal digits. {advice}"
        )
    return key


def _length(content: bytes) -> str:
    if len(content) == _MOST_BYTES:
        return f"{_MOST_BYTES} bytes or more"
    return counted(len(content), "byte")
