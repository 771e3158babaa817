"""Commits in files: whole or not there, the newest few, and nobody else's."""

import ctypes
import os
import resource
import threading
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from hvdtune.core.elastic.commit_files import (
    CommitOrder,
    CommitWriter,
    newest_commit,
    write_commit,
)
from hvdtune.core.elastic.loop import run as run_elastic
from hvdtune.core.elastic.state import ObjectState
from hvdtune.errors import UsageError

LIBC = ctypes.CDLL(None, use_errno=True)
RENAME_EXCHANGE = 2


@pytest.fixture
def order(tmp_path):
    return CommitOrder(tmp_path / "commits", 1, "0123abcd", {"state": 1}, keep=2)


def numbers(order):
    return sorted(int(path.name.split("-")[1]) for path in order.folder.iterdir())


def write(order, *commits):
    for number in commits:
        write_commit(replace(order, commits=number, content={"state": number}))


def test_the_newest_few_are_kept(order):
    write(order, 1, 2, 3)
    assert numbers(order) == [2, 3]
    assert newest_commit(order.folder).content == {"state": 3}


def test_a_training_that_has_gone_back_leaves_no_later_commit(order):
    write(order, 6, 7, 5)
    assert numbers(order) == [5]


def test_a_file_that_is_not_whole_is_passed_over(order):
    write(order, 1, 2)
    newest = max(order.folder.iterdir())
    newest.write_bytes(newest.read_bytes()[:-1])
    with pytest.warns(RuntimeWarning, match="Ignored the incomplete commit"):
        assert newest_commit(order.folder).commits == 1


def test_a_folder_without_commits_has_none(tmp_path):
    assert newest_commit(tmp_path) is None
    assert newest_commit(tmp_path / "nowhere") is None


def test_what_others_can_write_is_not_read(order):
    write(order, 1)
    os.chmod(next(order.folder.iterdir()), 0o666)
    with pytest.raises(UsageError, match="can be written to by other users"):
        newest_commit(order.folder)


def test_what_a_killed_process_has_left_is_removed(order):
    order.folder.mkdir()
    left = order.folder / ".hvdtune-commit-0123abcd-0123456789abcdef.part"
    others = [".model.safetensors.part", ".0123456789abcdef.part"]
    for name in (left.name, *others):
        (order.folder / name).write_text("half")
    write(order, 1)
    assert not left.exists()
    assert all((order.folder / name).read_text() == "half" for name in others)


def test_what_others_can_replace_is_not_read(order):
    write(order, 1)
    path = next(order.folder.iterdir())
    order.folder.chmod(0o777)
    with pytest.raises(UsageError, match="can be written to by other users"):
        newest_commit(order.folder)
    with pytest.raises(UsageError, match="can be written to by other users"):
        write(order, 2)
    order.folder.chmod(0o700)
    aside = path.rename(order.folder / "aside")
    path.symlink_to(aside)
    with pytest.raises(UsageError, match="is a link"):
        newest_commit(order.folder)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(UsageError, match="is not a file"):
        newest_commit(order.folder)


@pytest.mark.skipif(os.getuid() != 0, reason="needs another user")
def test_a_file_that_is_swapped_while_it_is_read_is_not_another_users(order):
    write(order, 1)
    path = next(order.folder.iterdir())
    other = order.folder / "other"
    other.write_bytes(path.read_bytes() + b"theirs")
    os.chown(other, 65534, 65534)
    is_over = threading.Event()

    def swap():
        while not is_over.is_set():
            assert LIBC.renameat2(-100, bytes(path), -100, bytes(other), RENAME_EXCHANGE) == 0

    swapping = threading.Thread(target=swap)
    swapping.start()
    contents, refused = [], 0
    try:
        while refused < 50 or len(contents) < 50:
            try:
                contents.append(newest_commit(order.folder).content)
            except UsageError:
                refused += 1
    finally:
        is_over.set()
        swapping.join()
    assert contents == [{"state": 1}] * len(contents)


class _Plant:
    def __reduce__(self):
        return os.mkdir, (os.environ["HVDTUNE_TEST_PLANTED"],)


def test_a_pickle_is_read_with_this_users_proof_only(order, tmp_path, monkeypatch):
    planted = tmp_path / "planted"
    monkeypatch.setenv("HVDTUNE_TEST_PLANTED", str(planted))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "me"))
    write_commit(replace(order, content={"state": {"a": 1, "b": _Plant()}}))
    assert (tmp_path / "me" / "hvdtune" / "commit-key").stat().st_mode & 0o777 == 0o600
    assert newest_commit(order.folder).content["state"]["a"] == 1
    assert planted.is_dir()
    planted.rmdir()
    (tmp_path / "me" / "hvdtune" / "commit-key").chmod(0o644)
    with pytest.raises(UsageError, match="is a pickle"):
        newest_commit(order.folder)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "another"))
    with pytest.raises(UsageError, match=r"state\['b'\] in it is a pickle"):
        newest_commit(order.folder)
    assert not planted.exists()


def test_plain_data_and_arrays_need_no_key(order, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "me"))
    write_commit(replace(order, content={"state": {"weights": np.arange(3), "lr": (0.1, None)}}))
    found = newest_commit(order.folder).content["state"]
    assert found["weights"].tolist() == [0, 1, 2] and found["lr"] == (0.1, None)
    assert not (tmp_path / "me").exists()


def test_a_full_disk_is_a_warning_and_the_training_goes_on(tmp_path):
    state = ObjectState(lambda value: value, lambda: 0, step=0, weights=np.zeros(1 << 20, np.uint8))

    @run_elastic
    def train(state):
        for state.step in range(1, 4):
            state.commit(to_disk=tmp_path / "commits")
        return state.step

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, limits[1]))
    try:
        with pytest.warns(RuntimeWarning, match="could not be written") as warned:
            assert train(state) == 3
        assert len(warned) == 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    with pytest.raises(UsageError, match="File too large"):
        state.flush()
    state.commit(to_disk=tmp_path / "commits")
    state.flush()
    assert newest_commit(tmp_path / "commits").content["state"]["step"] == 3


def test_a_value_that_cannot_be_copied_is_named():
    loader = SimpleNamespace(queue={"lock": threading.Lock()})
    with pytest.raises(
        UsageError, match=r"loader\.queue\['lock'\] is a _thread\.lock, which cannot"
    ):
        ObjectState(lambda value: value, lambda: 0, loader=loader)


def test_an_object_that_cannot_be_pickled_is_named(order):
    order.content["state"] = {"loader": {"locks": [threading.Lock()]}}
    with pytest.raises(UsageError, match=r"state\['loader'\]\['locks'\]\[0\] is a _thread.lock"):
        write_commit(order)


def test_another_trainings_commits_stay(order):
    write(order, 9)
    with pytest.raises(UsageError, match="belongs to another training"):
        write_commit(replace(order, training="ffffffff"))
    assert numbers(order) == [9]


def test_a_commit_that_fails_raises_at_the_next(order):
    writer = CommitWriter()
    order.folder.touch()
    writer.write(order)
    with pytest.raises(UsageError, match="commit 1 could not be written to"):
        writer.flush()
    order.folder.unlink()
    writer.write(order)
    writer.flush()
    assert numbers(order) == [1]


class _FailsLate:
    """Cannot be pickled, which it says once it is told to go on."""

    def __init__(self):
        self.is_pickled, self.goes_on = threading.Event(), threading.Event()

    def __reduce__(self):
        self.is_pickled.set()
        self.goes_on.wait()
        raise ValueError("no")


def test_a_commit_that_fails_is_told_also_after_one_that_succeeds(order):
    writer, value = CommitWriter(), _FailsLate()
    writer.write(replace(order, content={"value": value}))
    value.is_pickled.wait()
    writer.write(replace(order, commits=2))
    value.goes_on.set()
    with pytest.raises(UsageError, match="commit 1 could not be written to"):
        writer.flush()
    assert numbers(order) == [2]


def test_a_commit_of_other_things_is_refused(tmp_path):
    state = ObjectState(lambda value: value, lambda: 0, a=1)
    state.commit(to_disk=tmp_path)
    state.flush()
    other = ObjectState(lambda value: value, lambda: 0, b=1)
    with pytest.raises(UsageError, match="The commit contains a; this training's state has b"):
        other.resume(from_disk=tmp_path)


def test_a_script_may_call_its_own_values_what_it_likes(tmp_path):
    names = {"commits": 7, "training": "mine", "first_seed": 8}
    state = ObjectState(lambda value: value, lambda: 0, **names)
    state.commit(to_disk=tmp_path)
    state.flush()
    other = ObjectState(lambda value: value, lambda: 0, **dict.fromkeys(names))
    assert other.resume(from_disk=tmp_path)
    assert {name: getattr(other, name) for name in names} == names
