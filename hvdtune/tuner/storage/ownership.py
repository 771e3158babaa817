"""Studies that hvdtune made, among those of other programs in the same database.

A study is ours if it has a mark: an attribute written in the transaction that creates the study.
The mark is random, because SQLite gives the number of a deleted study to the next one.
"""

import contextlib
import json
import sqlite3
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import optuna
import sqlalchemy
from optuna.storages import RDBStorage
from optuna.storages._rdb import models
from optuna.study import StudyDirection
from sqlalchemy.orm import Session

from hvdtune.errors import StudyError

MARK: Final = "hvdtune"


def is_own(attributes: Mapping[str, Any]) -> bool:
    """Check whether a study with these attributes is ours."""
    return isinstance(attributes.get(MARK), str)


def open_or_create(storage: RDBStorage, name: str, objectives: int, where: str) -> optuna.Study:
    """Open our study of this name; create it if the name is free.

    Raises StudyError if another program made the study.
    """
    with contextlib.suppress(KeyError):
        return load(storage, name, where)
    mark = models.StudyUserAttributeModel(key=MARK, value_json=json.dumps(str(uuid.uuid4())))
    directions = [
        models.StudyDirectionModel(objective=number, direction=StudyDirection.MAXIMIZE)
        for number in range(objectives)
    ]
    study = models.StudyModel(study_name=name, directions=directions, user_attributes=[mark])
    # Another program may take the name at this moment.
    with (
        contextlib.suppress(sqlalchemy.exc.IntegrityError),
        Session(storage.engine) as session,
        session.begin(),
    ):
        session.add(study)
    return load(storage, name, where)


def load(storage: RDBStorage, name: str, where: str) -> optuna.Study:
    """Load our study of this name.

    Every later transaction of `storage` fails if the study is gone by then. Raises KeyError if
    the name is unknown, StudyError if another program made the study.
    """
    study = optuna.load_study(study_name=name, storage=storage)
    attributes = study.user_attrs
    if not is_own(attributes):
        raise foreign(name, where)
    _guard(storage.engine, study._study_id, attributes[MARK], f"study {name} is missing in {where}")
    return study


def foreign(name: str, where: str) -> StudyError:
    """Return the refusal of another program's study."""
    return StudyError(
        f"{where}: hvdtune did not make study {name}, so hvdtune neither uses nor deletes the "
        "study; choose another study name"
    )


def is_foreign(connection: sqlalchemy.Connection, name: str) -> bool:
    """Check whether another program made the study of this name."""
    study, attribute = models.StudyModel, models.StudyUserAttributeModel
    if not sqlalchemy.inspect(connection).has_table(study.__tablename__):
        return False
    mark = sqlalchemy.and_(attribute.study_id == study.study_id, attribute.key == MARK)
    query = (
        sqlalchemy.select(study.study_id, attribute.value_json)
        .outerjoin(attribute, mark)
        .where(study.study_name == name)
    )
    return any(row.value_json is None for row in connection.execute(query))


def names(storage: RDBStorage) -> tuple[list[str], list[str]]:
    """Names of our studies and of all others, sorted."""
    if not sqlalchemy.inspect(storage.engine).has_table(models.StudyModel.__tablename__):
        return [], []
    studies = sorted(storage.get_all_studies(), key=lambda study: study.study_name)
    ours = [study.study_name for study in studies if is_own(study.user_attrs)]
    return ours, [study.study_name for study in studies if not is_own(study.user_attrs)]


def foreign_in_file(path: Path) -> Sequence[str]:
    """Names of other programs' studies in a SQLite file; empty if it cannot be read."""
    if not path.is_file():
        return []
    query = (
        "SELECT study_name FROM studies WHERE study_id NOT IN "
        "(SELECT study_id FROM study_user_attributes WHERE key = ?) ORDER BY study_name"
    )
    try:
        uri = path.absolute().as_uri() + "?mode=ro"
        with contextlib.closing(sqlite3.connect(uri, uri=True)) as database:
            return [str(name) for (name,) in database.execute(query, (MARK,))]
    except sqlite3.Error:
        return []


def refuse_foreign_file(path: Path) -> None:
    """Raise StudyError if other programs have studies in this file of a run folder."""
    found = foreign_in_file(path)
    if found:
        more = f" and {len(found) - 1} more" if len(found) > 1 else ""
        raise StudyError(
            f"{path} holds study {found[0]}{more}, which hvdtune did not make; use another folder"
        )


def lock_study(session: Session | sqlalchemy.Connection, condition: Any) -> None:
    """Lock the rows of studies until the transaction ends.

    As the first statement of a transaction, a write makes SQLite take its lock, too.
    """
    name = models.StudyModel.study_name
    session.execute(sqlalchemy.update(models.StudyModel).where(condition).values(study_name=name))


def lock_study_id(connection: sqlalchemy.Connection, study_id: int) -> None:
    """Lock the row of one study until the transaction ends."""
    lock_study(connection, models.StudyModel.study_id == study_id)


def find_locked(session: Session, name: str, where: str) -> models.StudyModel:
    """Return the row of our study and lock it until the transaction ends.

    Raises StudyError if the name is unknown or another program made the study.
    """
    lock_study(session, models.StudyModel.study_name == name)
    study = models.StudyModel.find_by_name(name, session)
    if study is None:
        raise StudyError(f"{where} holds no study {name}")
    stored = {each.key: json.loads(each.value_json) for each in study.user_attributes}
    if not is_own(stored):
        raise foreign(name, where)
    return study


def _guard(engine: sqlalchemy.Engine, study_id: int, mark: str, problem: str) -> None:
    table = models.StudyUserAttributeModel
    query = sqlalchemy.select(table.value_json).where(table.study_id == study_id, table.key == MARK)

    @sqlalchemy.event.listens_for(engine, "commit")
    def check(connection: sqlalchemy.Connection) -> None:
        if connection.execute(query).scalar() != json.dumps(mark):
            raise sqlalchemy.exc.InvalidRequestError(problem)
