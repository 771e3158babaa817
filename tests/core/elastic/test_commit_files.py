"""Commits in files: whole or not there, the newest few, and nobody else's."""

import os
import threading
from dataclasses import replace

import pytest

from hvdtune.core.elastic.commit_files import (
    CommitOrder,
    CommitWriter,
    newest_commit,
    write_commit,
)
from hvdtune.core.elastic.state import ObjectState
from hvdtune.errors import UsageError


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
    with pytest.warns(RuntimeWarning, match="is not whole"):
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
    (order.folder / ".0123456789abcdef.part").write_text("half")
    write(order, 1)
    assert numbers(order) == [1]


def test_another_trainings_commits_stay(order):
    write(order, 9)
    with pytest.raises(UsageError, match="is another training's"):
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
    with pytest.raises(UsageError, match="the commit keeps a, but this training's state b"):
        other.resume(from_disk=tmp_path)


def test_a_script_may_call_its_own_values_what_it_likes(tmp_path):
    names = {"commits": 7, "training": "mine", "first_seed": 8}
    state = ObjectState(lambda value: value, lambda: 0, **names)
    state.commit(to_disk=tmp_path)
    state.flush()
    other = ObjectState(lambda value: value, lambda: 0, **dict.fromkeys(names))
    assert other.resume(from_disk=tmp_path)
    assert {name: getattr(other, name) for name in names} == names
