"""Deleting a study: its own files and nothing else."""

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import sqlalchemy
from sqlalchemy.orm import Session

from hvdtune.errors import StudyError
from hvdtune.tuner.storage.database import as_study_error, opened_storage, shown_url
from hvdtune.tuner.storage.leases import LeaseTable
from hvdtune.tuner.storage.ownership import find_locked, refuse_foreign_file
from hvdtune.tuner.storage.study_reader import STUDY_FILE
from hvdtune.tuner.storage.study_store import lock_study

# Folder within the run's, and the names of a study's files there.
_OWN: Final = (
    (".", r"study\.db(-wal|-shm|-journal)?(\.damaged(-\d+)?)?"),
    (".", r"pairs\.jsonl(\.damaged)?|tuner\.lock"),
    (".", r"(run|storage|verdict)\.json(\.part)?"),
    (".", r"trace(-job\d+)?\.json(\.partial)?"),
    (".", r"\.trace(-job\d+)?\.json\.hvdtune"),  # the cache of a large trace
    (".", r"(profile\.yaml|report\.md)(\.part)?|drift\.jsonl|failure\.txt"),
    ("output", r"launch-\d+\.log"),
    ("ranks/launch-*", r"rank-\d+(-job\d+)?\.hvt(\.1)?"),
    ("artifacts", r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"),
)


def own_files(folder: Path) -> list[Path]:
    """The files of the study in this folder; links to folders are not followed."""
    return [
        path
        for place, names in _OWN
        for inside in _folders(folder, place)
        for path in sorted(inside.iterdir())
        if re.fullmatch(names, path.name) and (path.is_file() or path.is_symlink())
    ]


def delete_run(folder: Path) -> list[Path]:
    """Deletes the study in a run folder, and the folder if nothing else is in it.

    Returns the remaining files. Raises StudyError if a tuner or its job works there, if study.db
    holds a study of another program, or if a file cannot be deleted.
    """
    with ExitStack() as stack:
        stack.callback(os.close, lock_study(folder))
        refuse_foreign_file(folder / STUDY_FILE)
        run = folder / "run.json"
        if run.exists():
            file = stack.enter_context(run.open("rb"))
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StudyError(f"a run is active in {folder}: stop it first") from None
        try:
            for path in own_files(folder):
                path.unlink()
            for place, _ in reversed(_OWN):
                for inside in _folders(folder, place):
                    _remove_if_empty(inside)
            _remove_if_empty(folder / "ranks")
            _remove_if_empty(folder)
        except OSError as error:
            raise StudyError(f"cannot delete {error.filename}: {error.strerror}") from error
    return sorted(folder.rglob("*")) if folder.exists() else []


def delete_stored(url: sqlalchemy.URL, name: str) -> None:
    """Delete our study from a database.

    Raises StudyError if there is no such study, another program made it, or a tuner works on it.
    """
    where = shown_url(url)
    with as_study_error(where), opened_storage(url) as storage:
        engine = storage.engine
        is_shared = LeaseTable.has_tables(engine)
        # One transaction: the checks hold until the study is deleted.
        with Session(engine) as session, session.begin():
            study = find_locked(session, name, where)
            if is_shared:
                leases = LeaseTable(engine, int(study.study_id))
                connection = session.connection()
                working = [each.name for each in leases.tuners_in(connection) if each.alive]
                if working:
                    raise StudyError(
                        f"{', '.join(working)} works on {name} in {where}: stop it first"
                    )
                leases.remove(connection)
            session.delete(study)


def _folders(folder: Path, place: str) -> Iterator[Path]:
    if place == ".":
        yield folder
        return
    for found in sorted(folder.glob(place)):
        inside = found.is_dir() and not found.is_symlink()
        if inside and not found.parent.is_symlink():
            yield found


def _remove_if_empty(folder: Path) -> None:
    if folder.is_dir() and not folder.is_symlink() and not any(folder.iterdir()):
        folder.rmdir()
