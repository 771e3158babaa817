"""Files and folders where other users of the machine can write, too."""

import grp
import os
import pwd
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest

from hvdtune.errors import HvdtuneError
from hvdtune.own_files import (
    make_folders,
    make_own_folder,
    open_own_folder,
    read_own,
    replacement,
    require_own,
    require_trusted,
)
from hvdtune.timeline.writing.export import replacing
from hvdtune.tuner.files import replace_file


def test_a_folder_is_made_for_this_user_alone_and_found_again(tmp_path):
    folder = tmp_path / "mine"
    make_own_folder(folder)
    make_own_folder(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    ("mode", "owner", "problem"),
    [
        (0o777, 0, "can be written to by other users"),
        (0o1777, 0, "can be written to by other users"),
        (0o700, 1, "belongs to another user"),
    ],
)
def test_a_folder_of_others_is_refused(tmp_path, monkeypatch, mode, owner, problem):
    folder = tmp_path / "theirs"
    folder.mkdir()
    folder.chmod(mode)
    me = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: me + owner)
    with pytest.raises(PermissionError, match=problem):
        make_own_folder(folder)


def test_a_file_is_read_from_the_descriptor_that_was_checked(tmp_path):
    path = tmp_path / "mine"
    path.write_bytes(b"content")
    with open_own_folder(tmp_path) as folder:
        (tmp_path / "aside").mkdir()
        assert read_own(tmp_path / "aside" / "mine", folder) == b"content"
    path.chmod(0o666)
    with pytest.raises(PermissionError, match="mine can be written to by other users"):
        read_own(path)
    (tmp_path / "link").symlink_to(path)
    with pytest.raises(PermissionError, match="is a link"):
        read_own(tmp_path / "link")
    with pytest.raises(PermissionError, match="is not a file"):
        read_own(tmp_path)


@pytest.mark.parametrize(
    ("group", "members", "is_own"),
    [("me", [], True), ("me", ["me"], True), ("me", ["me", "you"], False), ("users", [], False)],
)
def test_a_group_may_write_only_if_nobody_else_is_in_it(
    tmp_path, monkeypatch, group, members, is_own
):
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: SimpleNamespace(pw_name="me"))
    monkeypatch.setattr(grp, "getgrgid", lambda gid: SimpleNamespace(gr_name=group, gr_mem=members))
    path = tmp_path / "file"
    path.touch()
    path.chmod(0o664)
    if is_own:
        require_own(path)
    else:
        with pytest.raises(PermissionError, match="other users"):
            require_own(path)


@pytest.mark.skipif(os.geteuid() != 0, reason="to change the group of a file needs root")
def test_a_group_that_is_not_the_primary_one_may_not_write(tmp_path):
    os.chown(tmp_path, -1, 54321)
    tmp_path.chmod(0o770)
    with pytest.raises(PermissionError, match="other users"):
        require_own(tmp_path)


def test_folders_above_are_made_for_this_user_alone(tmp_path):
    before = os.umask(0o002)
    try:
        make_folders(tmp_path / "a" / "b" / "c")
    finally:
        os.umask(before)
    for folder in ("a", "a/b", "a/b/c"):
        assert stat.S_IMODE((tmp_path / folder).stat().st_mode) == 0o700


def test_a_link_is_refused_wherever_it_leads(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(PermissionError, match="is a link"):
        require_own(tmp_path / "link")


@pytest.mark.parametrize(
    ("above", "folder", "file", "problem"),
    [
        (0o755, 0o700, 0o644, None),
        (0o1777, 0o700, 0o644, None),
        (0o777, 0o700, 0o644, "above can be written to by other users"),
        (0o755, 0o777, 0o644, "folder can be written to by other users"),
        (0o755, 0o700, 0o666, "file can be written to by other users"),
    ],
)
@pytest.mark.parametrize("by_link", [False, True], ids=["directly", "by-a-link"])
def test_what_others_could_have_put_there_is_not_trusted(
    tmp_path, above, folder, file, problem, by_link
):
    path = tmp_path / "above" / "folder" / "file"
    path.parent.mkdir(parents=True)
    path.touch()
    path.chmod(file)
    path.parent.chmod(folder)
    path.parent.parent.chmod(above)
    asked = path
    if by_link:
        (tmp_path / "link").symlink_to(path.parent)
        asked = tmp_path / "link" / "file"
    if problem is None:
        require_trusted(asked)
    else:
        with pytest.raises(HvdtuneError, match=problem):
            require_trusted(asked)


def test_what_belongs_to_another_user_is_not_trusted(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.touch()
    if os.geteuid() == 0:
        os.chown(path, 1, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 1)
    with pytest.raises(HvdtuneError, match="belongs to another user"):
        require_trusted(path)


@pytest.mark.parametrize("mode", [0o666, 0o600])
def test_a_file_is_replaced_as_a_whole_with_the_permissions_that_were_asked_for(tmp_path, mode):
    path = tmp_path / "file"
    path.write_text("longer than what comes")
    before = os.umask(0o022)
    try:
        with replacement(path, mode) as part:
            part.write_text("new")
            assert path.read_text() == "longer than what comes"
    finally:
        os.umask(before)
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == mode & ~0o022
    assert list(tmp_path.iterdir()) == [path]


def test_what_fails_half_way_leaves_the_file_as_it_was(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(OSError, match="disk full"), replacement(path) as part:
        part.write_text("ne")
        raise OSError("disk full")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def export_file(path: Path) -> None:
    with replacing(path) as file:
        file.write(b"new")


@pytest.mark.parametrize(
    ("write", "planted"),
    [
        (export_file, "trace.json.partial"),
        (lambda path: replace_file(path, "new"), "trace.json.part"),
    ],
    ids=["a-trace", "a-text"],
)
def test_links_beside_a_file_that_is_written_are_not_followed(tmp_path, write, planted):
    victim = tmp_path / "victim"
    victim.write_text("kept")
    (tmp_path / planted).symlink_to(victim)
    write(tmp_path / "trace.json")
    assert (tmp_path / "trace.json").read_text() == "new"
    assert victim.read_text() == "kept"
