import pytest

from hvdtune.errors import UsageError
from hvdtune.launcher.rank_files import rank_files, worker_files


def test_folders_sort_by_rank_and_hold_lines_without_prefix(tmp_path):
    with rank_files(tmp_path / "out", 11) as write:
        write("stdout", b"[7]<stdout>:a\n[7]<stdout>:b\n")
        write("stderr", b"[10]<stderr>:c\r")
    folders = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert folders == [f"rank.{rank:02}" for rank in range(11)]
    assert (tmp_path / "out/rank.07/stdout").read_bytes() == b"a\nb\n"
    assert (tmp_path / "out/rank.10/stderr").read_bytes() == b"c\r"


def test_workers_have_folders_as_they_come(tmp_path):
    with worker_files(tmp_path / "out") as write:
        write("stdout", b"[7]<stdout>:a\n[7]<stdout>:b\n")
        write("stderr", b"[10]<stderr>:c\r")
        write("stdout", b"[7]<stdout>:d\n")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["worker.10", "worker.7"]
    assert (tmp_path / "out/worker.7/stdout").read_bytes() == b"a\nb\nd\n"
    assert (tmp_path / "out/worker.10/stderr").read_bytes() == b"c\r"


@pytest.mark.parametrize("files", [lambda folder: rank_files(folder, 1), worker_files])
def test_a_folder_that_cannot_be_is_a_usage_error(tmp_path, files):
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="output folder"), files(tmp_path / "file"):
        pass
