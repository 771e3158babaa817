"""The timeline of a trial's last pair, kept as an artifact of the trial: of the last few and the
best.

It is cut from the raw traces that the ranks are still writing, between two blocks, and is small
enough to open at once.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import optuna
import sqlalchemy
from numpy.typing import NDArray
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial, TrialState

from hvdtune.core.config.knobs import Setting
from hvdtune.errors import TraceFormatError
from hvdtune.tuner.storage.trial import ARTIFACT_PREFIX, artifacts_of

if TYPE_CHECKING:  # pandas takes a second, for which a study that is resumed should not wait
    from hvdtune.timeline.model.trace import Trace
    from hvdtune.timeline.reading.formats.hvt import RankFile

ARTIFACTS_FOLDER: Final = "artifacts"
_BLOCKS_OF_A_PAIR: Final = 4
_MOST_RECORDS: Final = 100_000
_KIND_SHIFT: Final = np.uint64(48)
_RAW: Final = re.compile(r"rank-\d+(-job(?P<job>\d+))?\.hvt")


class TrialTimelines:
    """Keeps them in RUN/artifacts; a trial whose launch records nothing has none.

    Whatever goes wrong is a notice: no trial fails for its timeline.

    Args:
        keep: the timelines of so many last trials are kept, and of the best; 0: of none.
        notice: is told what could not be kept.
    """

    def __init__(self, run_dir: Path, keep: int, notice: Callable[[str], None]) -> None:
        self._run_dir = run_dir
        self._count = keep
        self._notice = notice
        self._told = False
        self._dropped: set[str] = set()

    def keep(self, storage: RDBStorage, trial: optuna.Trial, setting: Setting) -> None:
        """Cut out and store what the trial's last pair looked like; the trial has not ended."""
        paths = latest_rank_files(self._run_dir / "ranks") if self._count else []
        if not paths:
            return
        from hvdtune.timeline.reading.formats.hvt import read_rank_file

        try:
            trace = last_pair([read_rank_file(path) for path in paths], setting)
            if trace is not None:
                self._store(storage, trial, trace)
        except (OSError, TraceFormatError) as error:
            if not self._told:
                self._told = True
                reason = error.strerror if isinstance(error, OSError) else str(error)
                self._notice(f"timelines of trials are not kept: {reason}")

    def thin_out(self, storage: RDBStorage, trials: Sequence[FrozenTrial]) -> None:
        """Drop the timelines of all of these trials but the last ones and the best."""
        owners = [trial for trial in trials if artifacts_of(trial)]
        best = [trial for trial in owners if trial.state == TrialState.COMPLETE]
        wanted = {trial.number for trial in owners[-self._count :] if self._count}
        if best:
            wanted.add(max(best, key=lambda trial: trial.values[0]).number)
        for trial in owners:
            for artifact in artifacts_of(trial):
                if trial.number not in wanted and artifact not in self._dropped:
                    self._dropped.add(artifact)
                    drop_artifact(storage, trial._trial_id, artifact)
                    (self._folder / artifact).unlink(missing_ok=True)

    @property
    def _folder(self) -> Path:
        return self._run_dir / ARTIFACTS_FOLDER

    def _store(self, storage: RDBStorage, trial: optuna.Trial, trace: Trace) -> None:
        from hvdtune.timeline.writing.export import write_chrome

        self._folder.mkdir(exist_ok=True)
        before = set(artifacts_of(storage.get_trial(trial._trial_id)))
        with tempfile.TemporaryDirectory(dir=self._folder, prefix=".") as folder:
            path = Path(folder) / f"trial-{trial.number}.json.gz"
            write_chrome(trace, path)
            try:
                optuna.artifacts.upload_artifact(
                    artifact_store=optuna.artifacts.FileSystemArtifactStore(self._folder),
                    file_path=str(path),
                    study_or_trial=trial,
                )
            except OSError:
                for artifact in set(artifacts_of(storage.get_trial(trial._trial_id))) - before:
                    drop_artifact(storage, trial._trial_id, artifact)
                    (self._folder / artifact).unlink(missing_ok=True)
                raise


def drop_artifact(storage: RDBStorage, trial_id: int, artifact: str) -> None:
    """Forget an artifact of a trial, which may have ended: Optuna can only add them."""
    table = sqlalchemy.table(
        "trial_system_attributes", sqlalchemy.column("trial_id"), sqlalchemy.column("key")
    )
    row = (table.c.trial_id == trial_id) & (table.c.key == ARTIFACT_PREFIX + artifact)
    with storage.engine.begin() as connection:
        connection.execute(sqlalchemy.delete(table).where(row))


def latest_rank_files(ranks: Path) -> list[Path]:
    """The raw traces of the latest launch; of its latest job where the ranks formed several."""
    launches = {
        int(path.name.removeprefix("launch-")): path
        for path in ranks.glob("launch-*")
        if path.name.removeprefix("launch-").isdigit()
    }
    if not launches:
        return []
    jobs: defaultdict[int, list[Path]] = defaultdict(list)
    for path in sorted(launches[max(launches)].iterdir()):
        if match := _RAW.fullmatch(path.name):
            jobs[int(match["job"] or 0)].append(path)
    return jobs[max(jobs)] if jobs else []


def last_pair(files: Sequence[RankFile], setting: Setting) -> Trace | None:
    """The last four blocks of a trace; None when none of them has the setting."""
    first_version = _first_version(min(files, key=lambda file: file.rank), setting)
    if first_version is None:
        return None
    most = _MOST_RECORDS // len(files)
    from hvdtune.timeline.reading.merge import merge_files

    return merge_files({file.rank: _cut(file, first_version, most) for file in files}, [])


def _first_version(file: RankFile, setting: Setting) -> int | None:
    adopted = file.records[_is(file.records, "KNOB_ADOPTED")][-_BLOCKS_OF_A_PAIR:]
    texts = [file.names.get(int(name), "") for name in adopted["name"]]
    if not any(_is_setting(text, setting) for text in texts):
        return None
    return int(adopted["arg"][0])


def _is_setting(text: str, setting: Setting) -> bool:
    try:
        adopted: dict[str, Any] = json.loads(text)
    except ValueError:
        return False
    return all(name in setting and setting[name] == value for name, value in adopted.items())


def _cut(file: RankFile, first_version: int, most: int) -> RankFile:
    records = file.records
    adopted = records[_is(records, "KNOB_ADOPTED")]
    begins = adopted["begin_ns"][adopted["arg"] >= first_version]
    kept = records["begin_ns"] >= (begins.min() if len(begins) else records["begin_ns"].max())
    late = np.flatnonzero(kept)[-most:]
    # The clocks of ranks are compared from the first moment of a job to its last.
    clocks = records[_is(records, "CLOCK") & ~kept]
    carried = np.concatenate([file.carried[_is(file.carried, "CLOCK")], clocks])
    return replace(file, records=records[late], carried=carried, warnings=[], dropped=0)


def _is(records: NDArray[np.void], kind: str) -> NDArray[np.bool_]:
    from hvdtune.timeline.model.schema import KINDS

    found: NDArray[np.bool_] = (records["duration_and_kind"] >> _KIND_SHIFT) == KINDS[kind].code
    return found
