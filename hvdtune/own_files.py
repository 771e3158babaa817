"""Files and folders of this user where other users of the machine can write, too."""

from __future__ import annotations

import contextlib
import errno
import grp
import os
import pwd
import secrets
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from hvdtune.errors import HvdtuneError

# What os.link says where a file cannot have two names, as on shares of Windows and some FUSE.
_ONE_NAME_ONLY: Final = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)


@contextlib.contextmanager
def replacement(
    path: Path,
    mode: int = 0o666,
    put: Callable[[Path, Path], None] = os.replace,
    prefix: str = "",
) -> Iterator[Path]:
    """A new, empty file beside `path` that takes its place when the block ends without an error.

    Nobody can foresee its name, so nobody can have put a link to somewhere else there, or a file
    that keeps another owner.

    Args:
        mode: its permissions, less those that the process withholds (umask).
        put: how it takes the place; `add` leaves a file that is there.
        prefix: begins the part's name, so that parts of killed processes can be found.
    """
    part = path.with_name(f".{prefix}{secrets.token_hex(8)}.part")
    os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode))
    try:
        yield part
        put(part, path)
    finally:
        part.unlink(missing_ok=True)


def add(part: Path, path: Path) -> None:
    """Gives the file the name `path`, too. Raises FileExistsError where that is another's.

    A file system that knows one name for a file only has it replaced instead.
    """
    try:
        os.link(part, path)
    except OSError as error:
        if error.errno not in _ONE_NAME_ONLY:
            raise
        os.replace(part, path)


def make_own_folder(folder: Path) -> None:
    """Makes a folder in which only this user can write, unless there is one.

    Raises:
        OSError: it cannot be made, or what is there belongs to others or is open to them.
    """
    folder.mkdir(mode=0o700, exist_ok=True)
    require_own(folder)


def require_own(path: Path, advice: str = ": remove it") -> None:
    """Raises PermissionError for a link and for what another user owns or can write to.

    Args:
        advice: the end of the message.
    """
    _require_own(path, path.lstat(), advice)


def read_own(path: Path, folder: int | None = None) -> bytes:
    """Return the content of a file that only this user can write to.

    The file that is checked is the one that is read: it is opened once, without following a link.

    Args:
        folder: a descriptor of `open_own_folder`. Only the file's name is then looked up, in it.

    Raises:
        PermissionError: it is a link or not a file, or another user owns it or can write to it.
        OSError: it cannot be read.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(path if folder is None else path.name, flags, dir_fd=folder)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise PermissionError(errno.EPERM, f"{path} is a link", str(path)) from None
        raise
    try:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            raise PermissionError(errno.EPERM, f"{path} is not a file", str(path))
        _require_own(path, facts, "")
        with open(descriptor, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def open_own_folder(folder: Path) -> Iterator[int]:
    """A descriptor of a folder in which other users cannot write.

    Its owner may be root. For root it may be any user: in a container root often writes to a
    folder of the user outside.

    Raises:
        PermissionError: others can write there.
        OSError: it cannot be opened.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        facts = os.fstat(descriptor)
        if is_open_to_others(facts) or (facts.st_uid != 0 and os.geteuid() != 0):
            _require_own(folder, facts, "")
        yield descriptor
    finally:
        os.close(descriptor)


def _require_own(path: Path, facts: os.stat_result, advice: str) -> None:
    if stat.S_ISLNK(facts.st_mode):
        problem = "is a link"
    elif is_open_to_others(facts):
        problem = "can be written to by other users"
    elif facts.st_uid != os.geteuid():
        problem = "belongs to another user"
    else:
        return
    raise PermissionError(errno.EPERM, f"{path} {problem}{advice}", str(path))


def require_trusted(path: Path) -> None:
    """Raises HvdtuneError where others than this user and root could have put `path` there.

    They could if they own, or can write to, the file or a folder on the way to it. Folders such as
    /tmp, where everybody may add files but not replace those of others, may be on the way. Whoever
    owns hvdtune itself is trusted, too: root may run what a user has installed.
    """
    trusted = {0, os.geteuid(), os.stat(__file__).st_uid}
    real = path.resolve()
    for place in (path, *path.parents, real, *real.parents):
        facts = place.lstat()
        mode = facts.st_mode
        may_be_open = stat.S_ISLNK(mode) or (stat.S_ISDIR(mode) and mode & stat.S_ISVTX)
        if facts.st_uid not in trusted:
            problem = "belongs to another user"
        elif is_open_to_others(facts) and not may_be_open:
            problem = "can be written to by other users"
        else:
            continue
        raise HvdtuneError(
            f"{path} is not loaded, because {place} {problem}: correct that, or set "
            "XDG_CACHE_HOME to a folder of your own and build it again"
        )


def make_folders(folder: Path) -> None:
    """Make a folder and those above it that are missing, each for this user alone.

    `Path.mkdir(parents=True)` gives only the last one its mode.
    """
    for place in (*reversed(folder.parents), folder):
        place.mkdir(mode=0o700, exist_ok=True)


def is_open_to_others(facts: os.stat_result) -> bool:
    """Return whether other users may write there."""
    is_open_to_group = facts.st_mode & stat.S_IWGRP and not _is_private(facts.st_gid)
    return bool(facts.st_mode & stat.S_IWOTH or is_open_to_group)


def _is_private(gid: int) -> bool:
    """Return whether this user is the only one in a group.

    That is a user-private group: the primary group of the user, with the user's name and without
    other members. The system cannot list who else has it as primary group, because directory
    services need not enumerate users; a group of the user's name is taken for not shared like that.
    """
    if gid != os.getegid():
        return False
    try:
        user, group = pwd.getpwuid(os.geteuid()).pw_name, grp.getgrgid(gid)
    except KeyError:  # unknown to the system, as in a container
        return False
    return group.gr_name == user and set(group.gr_mem) <= {user}
