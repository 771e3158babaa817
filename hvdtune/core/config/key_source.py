"""Where a process finds its job's key: never in an argument, which all users of a host can read."""

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
# Of a file: two more than the longest key, in digits and with the end of its line.
_MOST_BYTES: Final = 2 * KEY_BYTES + 3
_MAKE: Final = f"openssl rand -hex {KEY_BYTES}"
_MAKE_FILE: Final = f"by `(umask 077; {_MAKE} > FILE)`"


def launched_key(env: Mapping[str, str]) -> bytes:
    """The key that a launcher has handed on, as a descriptor or in a file.

    Raises UsageError where there is none, or others can know it.
    """
    if env.get("HVDTUNE_KEY_FD"):
        return _of_descriptor(env["HVDTUNE_KEY_FD"])
    if env.get("HVDTUNE_KEY_FILE"):
        return _of_file(env["HVDTUNE_KEY_FILE"])
    raise UsageError("HVDTUNE_RENDEZVOUS is set but HVDTUNE_KEY_FD is not: use `hvdtune run`")


def users_key(env: Mapping[str, str]) -> bytes:
    """The key that the user has made for a job without our launcher, b"" for none.

    Raises UsageError for what is no key, or what others can know.
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
            f"HVDTUNE_KEY is not {2 * KEY_BYTES} hexadecimal digits: make a key with `{_MAKE}`"
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
        # Programs that the script starts have no business with the job's key.
        os.set_inheritable(fd, False)
    except OSError:
        raise UsageError(
            f"{source} is not open: this process was started by a rank and is none itself, or a "
            "program between `hvdtune run` and this one closed the descriptors it inherited"
        ) from None
    return _checked(key, source, "`hvdtune run` hands one on: leave the variable to it")


def _of_file(path: str) -> bytes:
    """The key of a file: 32 bytes, or 64 hexadecimal digits."""
    source = f"HVDTUNE_KEY_FILE={path}"
    try:
        with Path(path).expanduser().open("rb") as file:
            facts = os.fstat(file.fileno())
            if facts.st_mode & 0o077:
                raise UsageError(
                    f"{source} can be read by others: it must have mode 0600; if others may know "
                    f"the key by now, make another one in a new file, {_MAKE_FILE}"
                )
            if facts.st_uid not in (os.geteuid(), 0):
                raise UsageError(
                    f"{source} belongs to another user, who knows the key: make one of your own, "
                    f"{_MAKE_FILE}"
                )
            content = file.read(_MOST_BYTES)
    except FileNotFoundError:
        raise UsageError(
            f"{source} is not there: make a key where all hosts can read it, {_MAKE_FILE}"
        ) from None
    except OSError as error:
        raise UsageError(
            f"{source} cannot be read ({error.strerror}): make a key in a file that you can read "
            f"on all hosts, {_MAKE_FILE}"
        ) from None
    if len(content.strip()) == 2 * KEY_BYTES:
        with contextlib.suppress(ValueError):  # else it is no key at all, as is said below
            content = bytes.fromhex(content.decode("ascii"))
    return _checked(content, source, f"make one, {_MAKE_FILE}")


def _checked(key: bytes, source: str, advice: str) -> bytes:
    if len(key) != KEY_BYTES:
        raise UsageError(
            f"{source} holds no key, but {_length(key)}: a key is {KEY_BYTES} bytes, or "
            f"{2 * KEY_BYTES} hexadecimal digits; {advice}"
        )
    return key


def _length(content: bytes) -> str:
    if len(content) == _MOST_BYTES:
        return f"{_MOST_BYTES} bytes or more"
    return counted(len(content), "byte")
